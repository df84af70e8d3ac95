package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// imageUUID is that of every EROFS image: images are told apart by their digest,
// and a random one would make equal content differ.
const imageUUID = "c0be5a2d-b0c5-4e20-9000-000000000001"

// packTree writes the folder dir as an EROFS image, as gVisor can map it: no
// attributes beyond POSIX (it refuses inodes with them), no file inside an inode
// (it cannot map those), no compression. Times stay as they are; stamp becomes
// the image's own.
func packTree(ctx context.Context, dir, image string, stamp time.Time) error {
	if err := need("mkfs.erofs", "erofs-utils"); err != nil {
		return err
	}
	env := []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(stamp.Unix(), 10)}
	return contained(ctx, env, nil, "mkfs.erofs", "-x-1", "-Enoinline_data", "--preserve-mtime", "-U"+imageUUID, "--quiet", image, dir)
}

// PackProgram writes an EROFS image that holds one executable file of the given
// name, owned by root: the guest agent's file system. Equal programs give equal
// images. It replaces image at once.
func PackProgram(ctx context.Context, program, name, image string) error {
	if err := need("mkfs.erofs", "erofs-utils"); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(image), ".pack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	tree, partial := filepath.Join(work, "tree"), filepath.Join(work, "image")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	if err := copyProgram(program, filepath.Join(tree, name)); err != nil {
		return err
	}
	args := []string{"-x-1", "-Enoinline_data", "-T0", "-U" + imageUUID, "--all-root", "--quiet", partial, tree}
	if err := contained(ctx, nil, nil, "mkfs.erofs", args...); err != nil {
		return fmt.Errorf("pack %s: %w", program, err)
	}
	return os.Rename(partial, image)
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	if err := out.Chmod(0o755); err != nil { // whatever the umask
		out.Close()
		return err
	}
	return out.Close()
}

func digestFile(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
