package cli

import (
	"context"
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
	if id, err := cube.ParseSandboxID(arg); err == nil {
		return id, nil
	}
	if !isPrefix(arg) {
		return "", fmt.Errorf("sandbox %q: %w: want an id, or its first %d digits or more", arg, cube.ErrInvalid, shortest)
	}
	all, err := c.List(ctx, client.Query{})
	if err != nil {
		return "", fmt.Errorf("find sandbox %s: %w", arg, err)
	}
	ids := make([]string, len(all))
	for i, s := range all {
		ids[i] = string(s.ID)
	}
	id, err := only("sandbox", arg, arg, ids)
	return cube.SandboxID(id), err
}

// endedID is sandboxID for one that has ended.
func endedID(ctx context.Context, c *client.Client, arg string) (cube.SandboxID, error) {
	if id, err := cube.ParseSandboxID(arg); err == nil {
		return id, nil
	}
	if !isPrefix(arg) {
		return "", fmt.Errorf("sandbox %q: %w: want an id, or its first %d digits or more", arg, cube.ErrInvalid, shortest)
	}
	all, err := c.Ended(ctx)
	if err != nil {
		return "", fmt.Errorf("find sandbox %s: %w", arg, err)
	}
	ids := make([]string, len(all))
	for i, e := range all {
		ids[i] = string(e.ID)
	}
	id, err := only("sandbox that has ended", arg, arg, ids)
	return cube.SandboxID(id), err
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
func only(what, arg, prefix string, ids []string) (string, error) {
	var fit []string
	for _, id := range ids {
		if strings.HasPrefix(id, prefix) {
			fit = append(fit, id)
		}
	}
	switch len(fit) {
	case 0:
		return "", fmt.Errorf("%s %s: %w", what, arg, cube.ErrNotFound)
	case 1:
		return fit[0], nil
	}
	return "", fmt.Errorf("%w: %s %s could be each of:\n  %s", errUsage, what, arg, strings.Join(fit, "\n  "))
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
