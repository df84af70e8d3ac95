package programs

import (
	"context"
	"errors"
	"fmt"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// one is a sandbox in which the program works, and the program as it was seen last.
type one struct {
	box client.Sandbox
	was lab.Working
}

// saved is a snapshot, and the program as it was seen last before it.
type saved struct {
	image  cube.ImageID
	source cube.SandboxID
	was    lab.Working
}

// keptSnapshots is how many of them are not deleted.
const keptSnapshots = 3

// look has the program compare all that it holds.
func (o *one) look(ctx context.Context) (lab.Working, error) {
	now, err := s.Ask(ctx, o.box.ID, "check")
	if err == nil {
		err = now.Follows(o.was)
	}
	return now, err
}

// settle has it come through whole, take a mark and go on.
func (o *one) settle(ctx context.Context, name string) (err error) {
	if o.was, err = o.look(ctx); err != nil {
		return fmt.Errorf("as it comes back: %w", err)
	}
	before := o.was
	if o.was, err = s.SetMark(ctx, o.box.ID, name); err != nil {
		return err
	}
	// But for the mark it is what it was.
	now := o.was
	now.Marks = now.Marks[:len(now.Marks)-1]
	if err := now.Follows(before); err != nil {
		return err
	}
	return s.Progress(ctx, o.box.ID, o.was)
}

// finish looks at it for the last time.
func (o *one) finish(ctx context.Context) error {
	_, err := o.look(ctx)
	return errors.Join(err, s.API.Kill(context.WithoutCancel(ctx), o.box.ID))
}

// save makes a snapshot of the current sandbox, and deletes the oldest.
func (c *chain) save(ctx context.Context) error {
	was := c.now.was
	err := c.during(ctx, func() error {
		snap, err := s.API.Snapshot(ctx, c.now.box.ID, "")
		if err == nil {
			c.saved = append(c.saved, saved{snap.ID, c.now.box.ID, was})
		}
		return err
	})
	if err != nil || len(c.saved) <= keptSnapshots {
		return err
	}
	old := c.saved[0]
	c.saved = c.saved[1:]
	return s.API.DeleteImage(ctx, string(old.image))
}

// snapshot saves the sandbox and makes another of that.
func (c *chain) snapshot(ctx context.Context) error {
	if err := c.save(ctx); err != nil {
		return err
	}
	return c.restore(ctx, c.saved[len(c.saved)-1])
}

// again makes a sandbox of any snapshot that there is, which may be one of an ancestor.
func (c *chain) again(ctx context.Context) error {
	if len(c.saved) == 0 {
		if err := c.save(ctx); err != nil {
			return err
		}
	}
	return c.restore(ctx, c.saved[c.random.IntN(len(c.saved))])
}

func (c *chain) restore(ctx context.Context, k saved) error {
	made, err := s.API.Create(ctx, client.NewSandbox{Template: string(k.image), Timeout: cube.NeverTimeout})
	if err != nil {
		return err
	}
	return c.family(ctx, []*one{{made, k.was}})
}

// clone makes one to three sandboxes of the running one.
func (c *chain) clone(ctx context.Context) error {
	was := c.now.was
	var copies []*one
	err := c.during(ctx, func() error {
		made, err := s.API.Clone(ctx, c.now.box.ID, client.Cloning{Count: 1 + c.random.IntN(3)})
		for _, b := range made {
			copies = append(copies, &one{b, was})
		}
		return err
	})
	return errors.Join(err, c.family(ctx, copies))
}

// family has copies and source go their own ways. One of them is the current sandbox then,
// the others end.
func (c *chain) family(ctx context.Context, copies []*one) (err error) {
	c.copies += len(copies)
	members := append(copies, c.now)
	keep := c.random.IntN(len(members))
	if keep < len(copies) {
		c.generations++
	}
	for _, o := range members {
		if serr := o.settle(ctx, c.name()); serr != nil {
			err = errors.Join(err, fmt.Errorf("one of %d: %w", len(members), serr))
		}
	}
	c.now = members[keep]
	for i, o := range members {
		if i != keep {
			err = errors.Join(err, o.finish(ctx))
		}
	}
	return err
}

// rollback takes the sandbox back to one of its snapshots: what it was marked with and did
// since then has not been.
func (c *chain) rollback(ctx context.Context) error {
	var own []saved
	for _, k := range c.saved {
		if k.source == c.now.box.ID {
			own = append(own, k)
		}
	}
	if len(own) == 0 {
		if err := c.save(ctx); err != nil {
			return err
		}
		own = c.saved[len(c.saved)-1:]
	}
	k := own[c.random.IntN(len(own))]
	if err := c.now.settle(ctx, c.name()); err != nil {
		return err
	}
	if err := c.moment(ctx); err != nil {
		return err
	}
	if err := s.API.Rollback(ctx, c.now.box.ID, string(k.image)); err != nil {
		return err
	}
	c.generations++
	c.now.was = k.was
	return c.now.settle(ctx, c.name())
}

// pause puts the sandbox away and brings it back.
func (c *chain) pause(ctx context.Context) error {
	if err := s.API.Pause(ctx, c.now.box.ID); err != nil {
		return err
	}
	if _, err := s.API.Resume(ctx, c.now.box.ID, 0); err != nil {
		return err
	}
	c.generations++
	return c.now.settle(ctx, c.name())
}
