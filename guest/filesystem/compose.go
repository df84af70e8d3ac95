package filesystem

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"cubesandbox/guest/spawn"
	"cubesandbox/guest/users"

	"golang.org/x/sys/unix"
)

const (
	maxCompose = 4 << 20 // bytes of a request
	maxSources = 10_000
)

// composition is what POST /files/compose is asked to do: one file of several, which
// are then deleted. Nobody sees the file half made: it gets its name when it is whole.
type composition struct {
	SourcePaths []string `json:"source_paths"`
	Destination string   `json:"destination"`
	Username    string   `json:"username"`

	files       *Files
	destination string // absolute
	temporary   string // where the file is made
}

// composed is the answer: what an upload says of a file, and more.
type composed struct {
	uploaded
	// Kept are the sources that the user could not delete.
	Kept []string `json:"kept,omitempty"`
}

// Compose serves POST /files/compose. The caller has asked for the access token.
func (f *Files) Compose(w http.ResponseWriter, r *http.Request) {
	c := composition{files: f}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCompose)).Decode(&c); err != nil {
		WriteError(w, http.StatusBadRequest, "invalid request body: "+err.Error())
		return
	}
	if c.Username == "" {
		c.Username = f.DefaultUser()
	}
	kept, err := c.run(r.Context())
	if err != nil {
		code, text := httpError(err)
		WriteError(w, code, text)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	json.NewEncoder(w).Encode(composed{uploaded{filepath.Base(c.destination), c.destination, "file", nil}, kept})
}

func (c *composition) run(ctx context.Context) (kept []string, err error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	out, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	err = c.fill(ctx, out)
	if e := out.Close(); err == nil {
		err = e
	}
	if e := c.end(context.WithoutCancel(ctx), err == nil, &kept); err == nil {
		err = e
	}
	return kept, err
}

// check refuses what cannot be, before anything is touched.
func (c *composition) check() error {
	bad := func(format string, args ...any) error {
		return &status{http.StatusBadRequest, fmt.Sprintf(format, args...)}
	}
	switch {
	case len(c.SourcePaths) == 0:
		return bad("source_paths must not be empty")
	case len(c.SourcePaths) > maxSources:
		return bad("more than %d source_paths; compose parts of them first", maxSources)
	case c.Destination == "":
		return bad("destination is required")
	}
	for _, path := range append([]string{c.Destination}, c.SourcePaths...) {
		if path == "" || strings.ContainsRune(path, 0) {
			return bad("the path %q is none", path)
		}
	}
	return nil
}

// begin looks at the sources and makes the file, under another name.
func (c *composition) begin(ctx context.Context) (out *os.File, err error) {
	err = c.files.Runner.Do(ctx, c.Username, func(u users.User) error {
		c.destination = spawn.Resolve(u, c.Destination)
		if info, err := os.Stat(c.destination); err == nil && info.IsDir() {
			return &status{http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", c.destination)}
		}
		for i, path := range c.SourcePaths {
			c.SourcePaths[i] = spawn.Resolve(u, path)
			if c.SourcePaths[i] == c.destination {
				return &status{http.StatusBadRequest, fmt.Sprintf("source path '%s' cannot be the same as destination", path)}
			}
			source, _, err := openRead(c.SourcePaths[i])
			if err != nil {
				return err
			}
			source.Close()
		}
		dir := filepath.Dir(c.destination)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		c.temporary = filepath.Join(dir, ".cube-compose-"+rand.Text())
		out, err = os.OpenFile(c.temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		return err
	})
	return out, err
}

// fill writes what the sources hold, one after the other. Each is as long as it was
// when it was opened: one that somebody goes on writing has an end.
func (c *composition) fill(ctx context.Context, out *os.File) error {
	b := pieces.Get().(*[piece]byte)
	defer pieces.Put(b)
	for _, path := range c.SourcePaths {
		var source *os.File
		var info os.FileInfo
		err := c.files.Runner.Do(ctx, c.Username, func(users.User) (err error) {
			source, info, err = openRead(path)
			return err
		})
		if err != nil {
			return err
		}
		// Hiding what else they can do has the copy use our buffer.
		_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{io.LimitReader(source, info.Size())}, b[:])
		source.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// end gives the file its name and deletes the sources, or deletes the file. ctx does
// not end with the request, for nothing half made is to stay.
func (c *composition) end(ctx context.Context, whole bool, kept *[]string) error {
	return c.files.Runner.Do(ctx, c.Username, func(users.User) error {
		if !whole {
			return os.Remove(c.temporary)
		}
		if err := os.Rename(c.temporary, c.destination); err != nil {
			return errors.Join(err, os.Remove(c.temporary))
		}
		for _, path := range c.SourcePaths {
			if err := os.Remove(path); err != nil && !errors.Is(err, unix.ENOENT) {
				*kept = append(*kept, path)
			}
		}
		return nil
	})
}
