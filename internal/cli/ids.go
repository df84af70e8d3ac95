package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	cube "cubesandbox"
	"cubesandbox/client"
)

// shortest is how many digits of an id must be given.
const shortest = 4

// sandboxID finds the sandbox that an id, or the beginning of one, means.
func sandboxID(ctx context.Context, c *client.Client, arg string) (cube.SandboxID, error) {
	return among(arg, "sandbox", func() ([]cube.SandboxID, error) {
		all, err := c.List(ctx, client.Query{})
		ids := make([]cube.SandboxID, len(all))
		for i, s := range all {
			ids[i] = s.ID
		}
		return ids, err
	})
}

// endedID is sandboxID for one that is to be recovered. One that cannot be is found
// where no other fits: the server says why.
func endedID(ctx context.Context, c *client.Client, arg string) (cube.SandboxID, error) {
	id, err := endedAmong(ctx, arg, c.Recoverable)
	if errors.Is(err, cube.ErrNotFound) {
		return endedAmong(ctx, arg, c.Ended)
	}
	return id, err
}

// killableID is sandboxID for one that is to be killed. One that has died, and could be
// recovered, is found where no other fits.
func killableID(ctx context.Context, c *client.Client, arg string) (cube.SandboxID, error) {
	id, err := sandboxID(ctx, c, arg)
	if !errors.Is(err, cube.ErrNotFound) {
		return id, err
	}
	if dead, derr := endedAmong(ctx, arg, c.Recoverable); !errors.Is(derr, cube.ErrNotFound) {
		return dead, derr
	}
	return id, err
}

func endedAmong(ctx context.Context, arg string, list func(context.Context) ([]client.Ended, error)) (cube.SandboxID, error) {
	return among(arg, "sandbox that has ended", func() ([]cube.SandboxID, error) {
		all, err := list(ctx)
		ids := make([]cube.SandboxID, len(all))
		for i, e := range all {
			ids[i] = e.ID
		}
		return ids, err
	})
}

// among finds the sandbox that an id, or the beginning of one of a list, means.
func among(arg, what string, list func() ([]cube.SandboxID, error)) (cube.SandboxID, error) {
	if id, err := cube.ParseSandboxID(arg); err == nil {
		return id, nil
	}
	if !isPrefix(arg) {
		return "", fmt.Errorf("sandbox %q: %w: want an id, or its first %d digits or more", arg, cube.ErrInvalid, shortest)
	}
	all, err := list()
	if err != nil {
		return "", fmt.Errorf("find sandbox %s: %w", arg, err)
	}
	return only(what, arg, arg, all)
}

// image is a snapshot or template that can be meant.
type image struct {
	id    string
	names []string
}

// imageID finds the image that an id, the beginning of one, or a name means. Of
// several with one name it is the first.
func imageID(kind, prefix, arg string, all []image) (string, error) {
	ids := make([]string, len(all))
	for i, img := range all {
		if slices.Contains(img.names, arg) || slices.Contains(img.names, strings.TrimSuffix(arg, ":default")) {
			return img.id, nil
		}
		ids[i] = img.id
	}
	digits := strings.TrimPrefix(arg, prefix)
	if !isPrefix(digits) {
		return "", fmt.Errorf("%s %s: %w", kind, arg, cube.ErrNotFound)
	}
	return only(kind, arg, prefix+digits, ids)
}

func isPrefix(s string) bool {
	return len(s) >= shortest && strings.Trim(s, "0123456789abcdef") == ""
}

// only returns the one id that begins with a prefix.
func only[T ~string](what, arg, prefix string, ids []T) (T, error) {
	var fit []T
	for _, id := range ids {
		if strings.HasPrefix(string(id), prefix) {
			fit = append(fit, id)
		}
	}
	switch len(fit) {
	case 0:
		return "", fmt.Errorf("%s %s: %w", what, arg, cube.ErrNotFound)
	case 1:
		return fit[0], nil
	}
	var listed strings.Builder
	for _, id := range fit {
		listed.WriteString("\n  " + string(id))
	}
	return "", fmt.Errorf("%w: %s %s could be each of:%s", errUsage, what, arg, listed.String())
}

// snapshotID finds the snapshot that an id, the beginning of one, or a name means.
func snapshotID(ctx context.Context, c *client.Client, arg string) (string, error) {
	if id, err := cube.ParseImageID(arg); err == nil && !id.IsTemplate() {
		return arg, nil
	}
	all, err := c.Snapshots(ctx, "")
	if err != nil {
		return "", fmt.Errorf("find snapshot %s: %w", arg, err)
	}
	var images []image
	for _, s := range all {
		images = append(images, image{string(s.ID), s.Names})
	}
	return imageID("snapshot", "snap-", arg, images)
}

// templateID is snapshotID for templates.
func templateID(ctx context.Context, c *client.Client, arg string) (string, error) {
	if id, err := cube.ParseImageID(arg); err == nil && id.IsTemplate() {
		return arg, nil
	}
	all, err := c.Templates(ctx)
	if err != nil {
		return "", fmt.Errorf("find template %s: %w", arg, err)
	}
	var images []image
	for _, t := range all {
		images = append(images, image{string(t.ID), t.Names})
	}
	return imageID("template", "tpl-", arg, images)
}

// startID finds what create starts from. A name is the server's to find.
func startID(ctx context.Context, c *client.Client, arg string) (string, error) {
	switch {
	case strings.HasPrefix(arg, "snap-"):
		return snapshotID(ctx, c, arg)
	case strings.HasPrefix(arg, "tpl-"):
		return templateID(ctx, c, arg)
	}
	return arg, nil
}
