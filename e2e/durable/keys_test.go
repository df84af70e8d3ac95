package durable

import (
	"errors"

	cube "cubesandbox"
	"cubesandbox/client"
)

// checkKeys: the same request with the same key is answered as it was, and where the
// answer was lost there is one sandbox afterwards and not two.
func (v *verifier) checkKeys() {
	for i := range v.l.creates {
		c := &v.l.creates[i]
		got, err := v.s.API.Create(v.ctx, c.n)
		switch b := v.l.boxes[c.id]; {
		case c.id == "" && err == nil:
			v.kill(got.ID)
			c.id = got.ID
			v.l.boxes[got.ID] = &box{Sandbox: got, killed: true}
			if n := v.count(c.n.Key); n != 0 {
				v.t.Errorf("key %q: %d more sandboxes than one were made", c.n.Key, n)
			}
			v.l.show("keys whose answer was lost made one sandbox")
		case c.id == "" && errors.Is(err, cube.ErrNotFound): // it was made, and has ended
			v.l.show("keys whose answer was lost are answered with the end")
		case c.id == "":
			v.t.Errorf("key %q, again: %v", c.n.Key, err)
		case b.killed && !errors.Is(err, cube.ErrNotFound):
			v.t.Errorf("key %q of %s, which has ended: %s (%v)", c.n.Key, c.id, got.ID, err)
		case !b.killed && (err != nil || got.ID != c.id || got.AccessToken != b.AccessToken):
			v.t.Errorf("key %q of %s gives %s (%v)", c.n.Key, c.id, got.ID, err)
		default:
			v.l.show("keys answered as before")
		}
	}
	for id, sn := range v.l.snapshots {
		if sn.key == "" || sn.deleted || v.l.boxes[sn.source] == nil {
			continue
		}
		again, err := v.s.API.SnapshotOnce(v.ctx, sn.source, sn.name, sn.key)
		if err != nil || again.ID != id {
			v.t.Errorf("key %q of snapshot %s gives %s (%v)", sn.key, id, again.ID, err)
		}
		v.l.show("keys answered as before")
	}
}

// count is how many sandboxes are there that were made with a key.
func (v *verifier) count(key string) int {
	all, err := v.s.API.List(v.ctx, client.Query{Metadata: map[string]string{"key": key}})
	if err != nil {
		v.t.Fatal(err)
	}
	return len(all)
}
