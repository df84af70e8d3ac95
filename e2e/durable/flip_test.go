package durable

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// region is how much one checksum of an image covers, in bytes.
const region = 1 << 20

// damage is one way to spoil a file, and the way back.
type damage struct {
	file, how  string
	spoil, fix func() error
}

// damages are all that are tried on an image: a random bit of every region of every
// file, each file shorter by a byte, empty, and not there at all.
func damages(t *testing.T, id cube.ImageID, files ...string) []damage {
	t.Helper()
	return damagesIn(t, s.Images.Dir(id), files...)
}

func damagesIn(t *testing.T, dir string, files ...string) []damage {
	t.Helper()
	var out []damage
	for _, name := range files {
		path := filepath.Join(dir, name)
		if err := own(path); err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		regions := (fi.Size() + region - 1) / region
		for k := range regions {
			if lab.Form() == "" && k != 0 && k != regions/2 && k != regions-1 {
				continue
			}
			out = append(out, flip(path, k, min(region, fi.Size()-k*region)))
		}
		out = append(out, cutTo(path, fi.Size()-1), cutTo(path, 0), away(path))
	}
	return out
}

// own puts a copy in the place of a file: sandboxes that have memory in it keep it whole.
func own(path string) error {
	return errors.Join(exec.Command("cp", "-p", path, path+".own").Run(), os.Rename(path+".own", path))
}

// flip turns one random bit of a region, and turns it again.
func flip(path string, k, length int64) damage {
	at, bit := k*region+rand.Int64N(length), byte(1)<<rand.IntN(8)
	turn := func() error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		b := make([]byte, 1)
		_, err = f.ReadAt(b, at)
		if err == nil {
			_, err = f.WriteAt([]byte{b[0] ^ bit}, at)
		}
		return errors.Join(err, f.Close())
	}
	return damage{filepath.Base(path), fmt.Sprintf("bit %08b of byte %d flipped", bit, at), turn, turn}
}

func cutTo(path string, size int64) damage {
	var rest []byte
	return damage{filepath.Base(path), fmt.Sprintf("cut to %d bytes", size), func() error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rest = b[size:]
		return os.Truncate(path, size)
	}, func() error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(rest, size)
		return errors.Join(err, f.Close())
	}}
}

func away(path string) damage {
	hidden := filepath.Join(s.Where.StateDir, "away")
	return damage{filepath.Base(path), "removed",
		func() error { return os.Rename(path, hidden) }, func() error { return os.Rename(hidden, path) }}
}

// each spoils, has the image refused, and mends.
func each(t *testing.T, id cube.ImageID, use func() error, after func(), files ...string) {
	t.Helper()
	eachOf(t, id, damages(t, id, files...), use, after)
}

func eachOf(t *testing.T, id cube.ImageID, all []damage, use func() error, after func()) {
	t.Helper()
	for _, d := range all {
		if err := d.spoil(); err != nil {
			t.Fatal(err)
		}
		err := use()
		if err == nil || !strings.Contains(err.Error(), d.file) || !strings.Contains(err.Error(), string(id)) {
			t.Errorf("%s, %s: got %v, want it refused, with image and file named", d.file, d.how, err)
		}
		if err != nil && !errors.Is(err, cube.ErrCorrupt) {
			t.Errorf("%s, %s: %v is not that it is corrupt", d.file, d.how, err)
		}
		after()
		if err := d.fix(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d kinds of damage were refused", len(all))
}

// memory are the files of an image that a restore of its memory needs.
var memory = []string{"manifest.json", "kernel", "pages-meta", "pages"}

// TestADamagedSnapshotIsRefusedAndTheSandboxAnswersAsBefore: every region of every
// file; the sandbox was to be rolled back to it.
func TestADamagedSnapshotIsRefusedAndTheSandboxAnswersAsBefore(t *testing.T) {
	s.Guard(t)
	in, saved := witnessed(t, s, client.NewSandbox{Timeout: time.Hour})
	snap, err := s.API.Snapshot(t.Context(), in.b.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	st, err := in.step(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rollback := func() error { return s.API.Rollback(t.Context(), in.b.ID, string(snap.ID)) }
	each(t, snap.ID, rollback, func() {
		in.same(t, st)
		if _, err := s.API.VerifyImage(t.Context(), string(snap.ID)); !errors.Is(err, cube.ErrCorrupt) {
			t.Errorf("it is verified as %v", err)
		}
	}, memory...)
	if err := rollback(); err != nil {
		t.Fatalf("after all was put back: %v", err)
	}
	in.same(t, saved)
}

// TestADamagedTemplateIsRefused: nothing is made from it, and it is fine again when
// all was put back.
func TestADamagedTemplateIsRefused(t *testing.T) {
	s.Guard(t)
	var made client.Sandbox
	create := func() (err error) {
		made, err = s.API.Create(t.Context(), client.NewSandbox{Template: string(s.Base)})
		return err
	}
	each(t, s.Base, create, func() {
		if all, err := s.API.List(t.Context(), client.Query{}); err != nil || len(all) != 0 {
			t.Errorf("there is %+v (%v)", all, err)
		}
	}, memory...)
	if err := create(); err != nil {
		t.Fatalf("after all was put back: %v", err)
	}
	if _, err := (inside{s, made}).run(t.Context(), "/bin/true"); err != nil {
		t.Error(err)
	}
}

// TestADamagedPauseIsRefusedAndComesBackWhenItIsMended: the memory of a paused sandbox
// is refused, which says that its files can be had; the files are refused where they
// are damaged; and when every bit is as it was, so is the sandbox.
func TestADamagedPauseIsRefusedAndComesBackWhenItIsMended(t *testing.T) {
	s.Guard(t)
	in, st := witnessed(t, s, client.NewSandbox{Timeout: time.Hour})
	id := pause(t, in)
	paused := func() {
		if b, err := s.API.Get(t.Context(), in.b.ID); err != nil || b.State != "paused" {
			t.Errorf("afterwards it is %q (%v)", b.State, err)
		}
	}
	resume := func() error {
		_, err := s.API.Resume(t.Context(), in.b.ID, 0)
		return err
	}
	each(t, id, resume, paused, memory...)
	each(t, id, func() error {
		_, err := s.API.ResumeWith(t.Context(), in.b.ID, client.Resumption{Files: true})
		return err
	}, paused, "disk.tar")
	if err := resume(); err != nil {
		t.Fatalf("after all was put back: %v", err)
	}
	in.same(t, st)
}

// TestWhoseMemoryIsDamagedComesBackFromItsFiles: where that is asked for, at resume or
// at create; else it is offered.
func TestWhoseMemoryIsDamagedComesBackFromItsFiles(t *testing.T) {
	for name, asked := range map[string]bool{"at resume": false, "at create": true} {
		t.Run(name, func(t *testing.T) {
			s.Guard(t)
			in, st := witnessed(t, s, client.NewSandbox{Timeout: time.Hour, FilesFallback: asked})
			id := pause(t, in)
			if err := flip(filepath.Join(s.Images.Dir(id), "pages"), 0, region).spoil(); err != nil {
				t.Fatal(err)
			}
			if !asked {
				if _, err := s.API.Resume(t.Context(), in.b.ID, 0); !errors.Is(err, cube.ErrCorrupt) || !strings.Contains(err.Error(), "files") {
					t.Errorf("got %v, want that the memory is damaged, and that the files can be had", err)
				}
			}
			b, err := s.API.ResumeWith(t.Context(), in.b.ID, client.Resumption{FilesFallback: !asked})
			if err != nil {
				t.Fatal(err)
			}
			if b.Restored != cube.RestoredFiles || b.AccessToken != in.b.AccessToken {
				t.Errorf("it was restored from %q; its token is the same: %t", b.Restored, b.AccessToken == in.b.AccessToken)
			}
			if _, err := in.state(t.Context()); err == nil {
				t.Error("the witness runs, whose memory was damaged")
			}
			for _, f := range []struct{ name, want string }{{"synced", st.Synced}, {"unsynced", st.Unsynced}} {
				got, err := in.run(t.Context(), "/bin/sh", "-c", fmt.Sprintf("cd %s && echo $(wc -l <%s) lines, $(sha256sum <%[2]s)", witnessDir, f.name))
				if err != nil || strings.TrimSuffix(got, " -") != f.want {
					t.Errorf("the file %s: %q (%v), want %q", f.name, got, err, f.want)
				}
			}
			if now, err := s.API.Get(t.Context(), in.b.ID); err != nil || now.Restored != cube.RestoredFiles {
				t.Errorf("it says that it was restored from %q (%v)", now.Restored, err)
			}
		})
	}
}

// pause pauses a sandbox and returns what it was saved to, which has its files apart.
func pause(t *testing.T, in inside) cube.ImageID {
	t.Helper()
	if err := s.API.Pause(t.Context(), in.b.ID); err != nil {
		t.Fatal(err)
	}
	all, err := s.Images.Images()
	if err != nil {
		t.Fatal(err)
	}
	for _, im := range all {
		if im.Kind != cube.KindPause || im.Source != in.b.ID {
			continue
		}
		if im.FilesBytes == 0 || !im.Durable {
			t.Errorf("%s has %d bytes of files; it is durable: %t", im.ID, im.FilesBytes, im.Durable)
		}
		return im.ID
	}
	t.Fatalf("there is no image of %s", in.b.ID)
	return ""
}
