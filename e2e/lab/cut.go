package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// PowerCutDisk is one that shows what a power cut leaves: nothing is committed to it
// because time has passed, only because somebody asked for it.
var PowerCutDisk = Disk{Size: 6 << 30, Journal: true, Options: "commit=600"}

// controlSize is the length of the two files that prove that a cut is one, in bytes.
const controlSize = 1 << 20

// CutPower does to the server and its state directory what a power cut does. All
// processes of ours are killed at once; what the state directory's file system has not
// brought to its device is lost; the run directory, the cgroups and the boot are gone.
// Start is what happens when the power is back.
//
// The device's file is copied before anything can bring more to it, and the copy is
// mounted in its place. That it has not less than a disk would have is proven by a file that was
// synced long before: a sync just before would be one for all. That it has not more, by
// one that was written just before and not synced. Where that is there all the same, since
// the machine had much to write and wrote it early, nothing was lost that could have been:
// whoever wants cuts counts those of Proven.
//
// It cannot show what a disk loses that was written to it and not flushed.
func (s *Server) CutPower(ctx context.Context) error {
	if err := writeControl(s.control("unsynced"), s.controlled, false); err != nil {
		return fmt.Errorf("power cut: %w", err)
	}
	if err := s.killAll(); err != nil {
		return fmt.Errorf("power cut: %w", err)
	}
	after := s.disk + ".after"
	for _, step := range []func() error{
		func() error { return command(ctx, "cp", "--sparse=always", "--reflink=auto", s.disk, after) },
		s.forget,
		func() error { return os.Rename(after, s.disk) },
		func() error { return s.kind.mount(ctx, s.disk, s.opt.StateDir) },
		s.checkControls,
		s.plant,
		s.newBoot,
	} {
		if err := step(); err != nil {
			return fmt.Errorf("power cut: %w", err)
		}
	}
	return nil
}

// control is one of the two files; they are in no directory of the server.
func (s *Server) control(name string) string {
	return filepath.Join(s.opt.StateDir, "control-"+name)
}

// plant writes the file that the next cut must leave.
func (s *Server) plant() error {
	s.controlled = make([]byte, controlSize)
	rand.Read(s.controlled) // never fails: it ends the program instead
	return writeControl(s.control("synced"), s.controlled, true)
}

func writeControl(path string, content []byte, sync bool) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if sync {
		err = errors.Join(err, f.Sync())
	}
	return errors.Join(err, f.Close())
}

// Proven is how many cuts have lost what was not synced.
func (s *Server) Proven() int { return s.proven }

// checkControls fails where the cut was more than one, and counts it where it was one.
func (s *Server) checkControls() error {
	kept, lost := s.control("synced"), s.control("unsynced")
	if got, err := os.ReadFile(kept); err != nil || !bytes.Equal(got, s.controlled) {
		return fmt.Errorf("what was synced is not there: %d of %d bytes (%v): this cut takes more than a real one", len(got), controlSize, err)
	}
	got, err := os.ReadFile(lost)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(got) == 0 {
		s.proven++
	}
	return errors.Join(os.RemoveAll(lost), os.Remove(kept))
}

// forget takes away what is not on a disk, and the disk as it was.
func (s *Server) forget() error {
	if err := s.keepLogs(); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.opt.RunDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(s.opt.RunDir, e.Name())); err != nil {
			return err
		}
	}
	if err := s.removeCgroups(); err != nil {
		return err
	}
	// What it has not written yet it need not write any more. Busy for as long as the
	// last process is going away.
	if err := s.shutDownDisk(); err != nil {
		return err
	}
	return Until(10*time.Second, "unmount "+s.opt.StateDir, func() error { return unix.Unmount(s.opt.StateDir, 0) })
}

// shutDownDisk has the file system write nothing from now on.
func (s *Server) shutDownDisk() error {
	const (
		goingDown = 0x8004587d // FS_IOC_SHUTDOWN
		noFlush   = 2          // FS_SHUTDOWN_FLAGS_NOLOGFLUSH
	)
	d, err := os.Open(s.opt.StateDir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.IoctlSetPointerInt(int(d.Fd()), goingDown, noFlush); err != nil {
		return fmt.Errorf("shut down %s: %w", s.opt.StateDir, err)
	}
	return nil
}

// PastLogs is where the logs of before the last cuts are, one after the other.
func (s *Server) PastLogs() string { return filepath.Join(filepath.Dir(s.opt.StateDir), "past.log") }

func (s *Server) keepLogs() error {
	out, err := os.OpenFile(s.PastLogs(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	for _, name := range []string{"keeper.log", "network.log", filepath.Base(s.LogPath())} {
		f, err := os.Open(filepath.Join(s.opt.RunDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "--- %s before a cut\n", name)
		_, err = io.Copy(out, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
