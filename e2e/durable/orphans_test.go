package durable

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	cube "cubesandbox"
	"cubesandbox/client"
)

// checkStrangers: there is no sandbox that nobody was told of.
func (v *verifier) checkStrangers() {
	all, err := v.s.API.List(v.ctx, client.Query{})
	if err != nil {
		v.t.Fatal(err)
	}
	for _, b := range all {
		if mine := v.l.boxes[b.ID]; mine == nil || mine.killed {
			v.t.Errorf("sandbox %s is there (%s), and nobody was told of it, or that it is killed", b.ID, b.State)
			v.kill(b.ID)
		}
	}
}

// checkOrphans: no plan is open, nothing is garbage after garbage was collected, and
// on disk and in memory is what is listed and nothing else.
func (v *verifier) checkOrphans() {
	plans, err := v.s.API.Plans(v.ctx)
	if err != nil || len(plans) != 0 {
		v.t.Errorf("plans that are open after a start: %+v (%v)", plans, err)
	}
	if _, err := v.s.API.Collect(v.ctx, false); err != nil {
		v.t.Errorf("collect garbage: %v", err)
	}
	if left, err := v.s.API.Collect(v.ctx, true); err != nil || len(left) != 0 {
		v.t.Errorf("garbage after it was collected: %+v (%v)", left, err)
	}
	running := 0
	made := map[string]bool{} // what living sandboxes were made from
	for _, b := range v.l.boxes {
		if !b.killed {
			running++
			made[b.Template] = true
		}
	}
	if n, err := v.s.LivesHere(v.ctx); err != nil || n != running {
		v.t.Errorf("%d sentries are there for %d sandboxes (%v)", n, running, err)
	}
	v.checkFiles(made)
}

func (v *verifier) checkFiles(made map[string]bool) {
	names := func(dir string) []string {
		entries, err := os.ReadDir(filepath.Join(v.s.Where.StateDir, dir))
		if err != nil {
			v.t.Error(err)
		}
		var out []string
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	for _, name := range names("images") {
		_, listed := v.listed[cube.ImageID(name)]
		if !listed && !strings.HasPrefix(name, "tpl-") && !made[name] {
			v.t.Errorf("images/%s is there, and nobody can use it", name)
		}
	}
	needed := map[string]bool{}
	all, err := v.s.Images.Images()
	if err != nil {
		v.t.Error(err)
	}
	for _, im := range all {
		for _, base := range im.Bases {
			needed[string(base)] = true
		}
	}
	for _, name := range names("bases") {
		if !needed[name] && !v.inUse(filepath.Join(v.s.Where.StateDir, "bases", name, "pages")) {
			v.t.Errorf("bases/%s is there, and no image and no sandbox has memory in it", name)
		}
	}
	if left := names("staging"); len(left) != 0 {
		v.t.Errorf("in staging: %q", left)
	}
}

// inUse reports whether somebody has pages open: a sandbox that has memory in them holds a
// shared lock.
func (v *verifier) inUse(pages string) bool {
	f, err := os.Open(pages)
	if err != nil {
		v.t.Error(err)
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}
