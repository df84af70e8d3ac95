package campaign

import (
	"context"
	"errors"
	"fmt"

	cube "cubesandbox"
	"cubesandbox/client"
)

// subject is the sandbox that one case is about, and what is known of it.
type subject struct {
	// tag is in the metadata of all that belongs to it, and is its idempotency key.
	tag string
	box client.Sandbox
	// before is what its witness had.
	before held
	snap   snapshot
	// answered: the verb was answered, and what was made is what the answer named.
	answered bool
	made     []cube.SandboxID
	image    cube.ImageID
}

// Values of the key "state" in the witness.
const (
	older = "older"
	newer = "newer"
)

// begin makes the subject's sandbox, of the witness's snapshot.
func (u *subject) begin(ctx context.Context, n client.NewSandbox) (err error) {
	n.Template, n.Metadata = string(kept.witness.ID), map[string]string{"case": u.tag}
	if n.Timeout == 0 {
		n.Timeout = cube.NeverTimeout
	}
	if u.box, err = users.Create(ctx, n); err != nil {
		return err
	}
	if err := u.set(ctx, older); err != nil {
		return err
	}
	u.before, err = look(ctx, u.box.ID)
	return err
}

func (u *subject) set(ctx context.Context, state string) error {
	return ask(ctx, u.box.ID, map[string]string{"op": "put", "key": "state", "value": state}, &struct{}{})
}

// save makes a snapshot of it, and goes on to another state.
func (u *subject) save(ctx context.Context) (err error) {
	if u.snap, err = snapshotKeyed(ctx, "", u.box.ID, ""); err != nil {
		return err
	}
	if err := durable(ctx, u); err != nil {
		return err
	}
	return u.set(ctx, newer)
}

// is reports whether it is whole and in a state.
func (u *subject) is(ctx context.Context, id cube.SandboxID, state string) error {
	h, err := look(ctx, id)
	if err != nil {
		return err
	}
	if err := h.follows(u.before); err != nil {
		return err
	}
	v, err := get(ctx, id, "state")
	if err == nil && (v.Memory != state || v.File != state) {
		err = fmt.Errorf("%w: it is %q in memory and %q in the file, want %q", errBroken, v.Memory, v.File, state)
	}
	return err
}

// files reports whether what it wrote is there, after a boot without its memory.
func (u *subject) files(ctx context.Context, state string) error {
	out, err := sh(ctx, u.box, "cat "+witnessDir+"/state.value")
	if err == nil && out != state {
		err = fmt.Errorf("%w: its file has %q, want %q", errBroken, out, state)
	}
	return err
}

// awake resumes it if it is paused, and says which it was.
func (u *subject) awake(ctx context.Context) (paused bool, err error) {
	b, err := users.Get(ctx, u.box.ID)
	if err != nil {
		return false, err
	}
	switch b.State {
	case "running":
		return false, nil
	case "paused":
		_, err = users.Connect(ctx, u.box.ID, 0)
		return true, err
	}
	return false, fmt.Errorf("its state is %q", b.State)
}

// boxes are all sandboxes of the case.
func (u *subject) boxes(ctx context.Context) ([]client.Sandbox, error) {
	return users.List(ctx, client.Query{Metadata: map[string]string{"case": u.tag}})
}

// copies are those that are not the subject itself.
func (u *subject) copies(ctx context.Context) (ids []cube.SandboxID, err error) {
	all, err := u.boxes(ctx)
	for _, b := range all {
		if b.ID != u.box.ID {
			ids = append(ids, b.ID)
		}
	}
	return ids, err
}

// clear takes away all that the case has made.
func (u *subject) clear(ctx context.Context) error {
	all, err := u.boxes(ctx)
	errs := []error{err}
	sources := map[cube.SandboxID]bool{u.box.ID: u.box.ID != ""}
	for _, b := range all {
		sources[b.ID] = true
		errs = append(errs, gone(users.Kill(ctx, b.ID)))
	}
	snaps, err := users.Snapshots(ctx, "")
	errs = append(errs, err)
	for _, snap := range snaps {
		if sources[snap.Source] {
			errs = append(errs, gone(users.DeleteImage(ctx, string(snap.ID))))
		}
	}
	return errors.Join(errs...)
}

// gone is the error of taking something away that may not be there.
func gone(err error) error {
	if errors.Is(err, cube.ErrNotFound) {
		return nil
	}
	return err
}
