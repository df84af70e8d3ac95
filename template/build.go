package template

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"time"

	cube "cubesandbox"
	"cubesandbox/internal/progress"
)

// Images is the part of the image store that a build needs.
type Images interface {
	// PutRootfs takes a file into the store and returns its SHA-256, in hex.
	PutRootfs(ctx context.Context, path string) (digest string, err error)
	// Image returns a published image, or an error that wraps cube.ErrNotFound. Of one
	// that is cube.ErrCorrupt it also says whether it was durable.
	Image(id cube.ImageID) (cube.Image, error)
	// Delete frees one.
	Delete(id cube.ImageID) error
}

// Engine is the part of cube.Engine that a build needs.
type Engine interface {
	Boot(ctx context.Context, spec cube.BootSpec) (cube.Sandbox, error)
	Save(ctx context.Context, id cube.SandboxID, image cube.ImageID) (cube.Image, error)
	Kill(ctx context.Context, id cube.SandboxID) error
	Dial(ctx context.Context, id cube.SandboxID, gen cube.Generation, port uint16) (net.Conn, error)
}

// Options say what to build, and with what.
type Options struct {
	// Definition is the folder of the template; see Find.
	Definition string
	// CacheDir holds root file systems, such as /var/cache/cube.
	CacheDir string
	// Fresh makes the root file system anew, with today's packages.
	Fresh bool
	// AgentDigest is the SHA-256, in hex, of the agent's file system, and
	// EngineVersion names the sentry: an image fits only these.
	AgentDigest   string
	EngineVersion string

	Images   Images
	Engine   Engine
	Progress *progress.Reporter // nil: silent
}

const (
	readyTimeout = 2 * time.Minute // a cold boot on a busy machine, and the warm commands
	killTimeout  = 30 * time.Second
)

// Build makes a template and returns its image. The id follows from the content:
// building again what is there returns it and starts nothing.
//
// After a failure there is no sandbox and no image of this build; a finished root
// file system stays in the cache.
func Build(ctx context.Context, o Options) (cube.Image, error) {
	def, err := Load(o.Definition)
	if err != nil {
		return cube.Image{}, err
	}
	rootfs, err := BuildRootfs(ctx, def, o.CacheDir, o.Fresh, o.Progress)
	if err != nil {
		return cube.Image{}, err
	}
	id := imageID(def, rootfs.Digest, o.AgentDigest, o.EngineVersion)
	image, err := o.Images.Image(id)
	if err == nil {
		o.Progress.Note("  template %s is there: %s", def.Name, id)
		return image, nil
	}
	if errors.Is(err, cube.ErrCorrupt) && !image.Durable {
		// A power cut came before a build was done: it was promised to nobody.
		o.Progress.Note("  template %s: %s was never finished; it is made again", def.Name, id)
		err = o.Images.Delete(id)
	}
	if err != nil && !errors.Is(err, cube.ErrNotFound) {
		return cube.Image{}, err
	}
	digest, err := o.Images.PutRootfs(ctx, rootfs.Path)
	if err != nil {
		return cube.Image{}, err
	}
	if digest != rootfs.Digest {
		return cube.Image{}, fmt.Errorf("template %s: %s has changed since it was made; remove its folder and build again: %w",
			def.Name, rootfs.Path, cube.ErrCorrupt)
	}
	image, err = bootAndSave(ctx, def, digest, id, o)
	if errors.Is(err, cube.ErrExists) {
		return o.Images.Image(id) // another builder was faster
	}
	if err != nil {
		return cube.Image{}, fmt.Errorf("template %s: %w", def.Name, err)
	}
	return image, nil
}

// imageID names an image by all that its content follows from.
func imageID(def *Definition, rootfs, agent, engine string) cube.ImageID {
	text := fmt.Sprintf("cube template 1\nrootfs %s\nagent %s\nengine %s\nlimits %+v\nuser %q\nwarm %q\n",
		rootfs, agent, engine, def.Limits, def.User.Name, def.Warm)
	return cube.TemplateIDFromDigest(sha256.Sum256([]byte(text)))
}

// bootAndSave boots the root file system in a sandbox that does not outlive the
// call, waits until it is ready, and saves it.
func bootAndSave(ctx context.Context, def *Definition, rootfs string, id cube.ImageID, o Options) (image cube.Image, err error) {
	step := o.Progress.Begin("boot")
	box := cube.NewSandboxID()
	if _, err := o.Engine.Boot(ctx, cube.BootSpec{ID: box, Rootfs: rootfs, Limits: def.Limits}); err != nil {
		step.Fail(err)
		return cube.Image{}, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		err = errors.Join(err, o.Engine.Kill(ctx, box))
	}()
	if err := makeReady(ctx, o.Engine, box, def); err != nil {
		step.Fail(err)
		return cube.Image{}, err
	}
	step.Done("ready")

	step = o.Progress.Begin("save")
	image, err = o.Engine.Save(ctx, box, id)
	if err != nil {
		step.Fail(err)
		return cube.Image{}, err
	}
	step.Done(fmt.Sprintf("%s, %d MB", id, image.Bytes/1e6))
	return image, nil
}
