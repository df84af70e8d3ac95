package template

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"cubesandbox/internal/progress"
)

// Rootfs is a root file system that is ready to be booted.
type Rootfs struct {
	// Path of the EROFS image in the cache. It may be replaced by a later build
	// of the same definition: copy or link what must stay.
	Path string `json:"-"`
	// Digest is the SHA-256 of the image, in hex.
	Digest string `json:"digest"`
	// Bytes is the size of the image.
	Bytes int64 `json:"bytes"`
	// Suite is the Debian release that was taken.
	Suite string `json:"suite"`
	// Packages is how many Debian packages it has.
	Packages int `json:"packages"`
	// Cached tells that nothing had to be made.
	Cached bool `json:"-"`
}

// BuildRootfs makes the root file system of a definition, or finds it under
// cacheDir: it is kept by what it is made from, which is the definition's
// folder, this package's version and the machine's apt sources. Newer packages
// in the archives do not count; fresh asks for them by making it anew.
//
// Two builders of one definition wait for each other, and the second finds what
// the first made. It needs root, mmdebstrap and erofs-utils, unless it is there.
// After a failure the cache is as before.
func BuildRootfs(ctx context.Context, def *Definition, cacheDir string, fresh bool, report *progress.Reporter) (Rootfs, error) {
	all, err := readSources()
	if err != nil {
		return Rootfs{}, err
	}
	suite, sources, err := pick(all, def.Suites)
	if err != nil {
		return Rootfs{}, def.wrong("", "suites", "%v", err)
	}
	key, err := cacheKey(def, suite, sources)
	if err != nil {
		return Rootfs{}, err
	}
	c := &cache{dir: filepath.Join(cacheDir, "rootfs")}
	if r, ok := c.find(key); ok && !fresh {
		return r, nil
	}
	if err := asRoot(); err != nil {
		return Rootfs{}, err
	}
	entry, err := c.begin(ctx, key, report)
	if err != nil {
		return Rootfs{}, err
	}
	defer entry.close()
	if r, ok := c.find(key); ok && !fresh {
		return r, nil
	}
	r, err := makeRootfs(ctx, def, suite, sources, entry.partial, report)
	if err != nil {
		return Rootfs{}, fmt.Errorf("template %s: %w", def.Name, err)
	}
	return entry.publish(r)
}

// makeRootfs works in the folder dir and leaves the image there.
func makeRootfs(ctx context.Context, def *Definition, suite string, sources []source, dir string, report *progress.Reporter) (Rootfs, error) {
	root, work := filepath.Join(dir, "root"), filepath.Join(dir, "work")
	for _, d := range []string{root, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return Rootfs{}, err
		}
	}
	began := time.Now()
	packages, err := debian(ctx, def, suite, sources, root, work, report)
	if err != nil {
		return Rootfs{}, err
	}
	stamp, err := seal(root, sources, began)
	if err != nil {
		return Rootfs{}, err
	}
	if err := runChecks(ctx, def, root, report); err != nil {
		return Rootfs{}, err
	}
	step := report.Begin("pack as EROFS")
	image := filepath.Join(dir, imageName)
	if err := packTree(ctx, root, image, stamp); err != nil {
		step.Fail(err)
		return Rootfs{}, err
	}
	digest, err := digestFile(image)
	if err != nil {
		return Rootfs{}, err
	}
	st, err := os.Stat(image)
	if err != nil {
		return Rootfs{}, err
	}
	step.Done(fmt.Sprintf("%d MB", st.Size()/1e6))
	for _, d := range []string{root, work} {
		if err := os.RemoveAll(d); err != nil {
			return Rootfs{}, err
		}
	}
	return Rootfs{Digest: digest, Bytes: st.Size(), Suite: suite, Packages: packages}, nil
}
