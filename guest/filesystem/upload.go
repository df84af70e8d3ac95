package filesystem

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"cubesandbox/guest/spawn"
	"cubesandbox/guest/users"

	"golang.org/x/sys/unix"
)

// maxParts bounds the files of one upload.
const maxParts = 10_000

// uploaded is what the answer to an upload says of each file.
type uploaded struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// upload is one request that writes files.
type upload struct {
	files *Files
	user  string
	path  string // of the query, empty when it has none
	meta  map[string]string
	done  []uploaded
	seen  map[string]bool
}

func (f *Files) upload(w http.ResponseWriter, r *http.Request, query url.Values) error {
	meta, err := requestMetadata(r.Header)
	if err != nil {
		return &status{http.StatusBadRequest, err.Error()}
	}
	u := &upload{files: f, user: f.user(query), path: query.Get("path"), meta: meta, done: []uploaded{}, seen: make(map[string]bool)}
	if r.Body, err = decoded(r); err != nil {
		return err
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "application/octet-stream":
		if u.path == "" {
			return &status{http.StatusBadRequest, "the query names no path"}
		}
		err = u.write(r.Context(), u.path, r.Body)
	case err == nil && strings.HasPrefix(kind, "multipart/"):
		err = u.parts(r)
	default:
		err = &status{http.StatusBadRequest, "Content-Type must be multipart/form-data or application/octet-stream"}
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	return json.NewEncoder(w).Encode(u.done)
}

// decoded undoes a request's Content-Encoding.
func decoded(r *http.Request) (io.ReadCloser, error) {
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, &status{http.StatusBadRequest, "the body is not gzip: " + err.Error()}
		}
		return z, nil
	}
	return nil, &status{http.StatusBadRequest, "unsupported Content-Encoding: gzip and identity are"}
}

// parts writes every part that is named "file".
func (u *upload) parts(r *http.Request) error {
	mr, err := r.MultipartReader()
	if err != nil {
		return &status{http.StatusBadRequest, "error parsing multipart form: " + err.Error()}
	}
	for n := 0; ; n++ {
		part, err := mr.NextPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &status{http.StatusBadRequest, "error parsing multipart form: " + err.Error()}
		}
		if n == maxParts {
			return &status{http.StatusBadRequest, fmt.Sprintf("more than %d parts; upload them in several requests", maxParts)}
		}
		if part.FormName() != "file" {
			continue
		}
		path := u.path
		if path == "" {
			if path = filename(part); path == "" {
				return &status{http.StatusBadRequest, "a part named file has no filename, and the query no path"}
			}
		}
		if err := u.write(r.Context(), path, part); err != nil {
			return err
		}
	}
}

// filename is a part's file name with its directories, which Part.FileName drops.
func filename(p *multipart.Part) string {
	_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params["filename"]
}

// write writes one file as the user.
func (u *upload) write(ctx context.Context, path string, from io.Reader) error {
	if strings.ContainsRune(path, 0) {
		return &status{http.StatusBadRequest, "the path has a NUL byte"}
	}
	var file *os.File
	var info os.FileInfo
	err := u.files.Runner.Do(ctx, u.user, func(account users.User) (err error) {
		path = spawn.Resolve(account, path)
		if u.seen[path] {
			return &status{http.StatusBadRequest, fmt.Sprintf("you cannot upload multiple files to the same path '%s' in one upload request, only the first specified file was uploaded", path)}
		}
		file, info, err = openWrite(path)
		return err
	})
	if err != nil {
		return err
	}
	u.seen[path] = true
	if err := u.fill(file, info, from); err != nil {
		return err
	}
	u.done = append(u.done, uploaded{filepath.Base(path), path, "file", u.meta})
	return nil
}

// piece is how much is copied at once, in bytes: system calls are dear in gVisor.
const piece = 128 << 10

var pieces = sync.Pool{New: func() any { return new([piece]byte) }}

// fill makes a body the content of a file, which it closes.
func (u *upload) fill(file *os.File, info os.FileInfo, from io.Reader) error {
	turn := u.files.turns.begin(info)
	defer turn.end()
	err := turn.change(func() error {
		if err := file.Truncate(0); err != nil {
			return err
		}
		return replaceMetadata(int(file.Fd()), u.meta)
	})
	if err == nil {
		b := pieces.Get().(*[piece]byte)
		defer pieces.Put(b)
		_, err = io.CopyBuffer(turnWriter{file, turn}, body{from}, b[:])
	}
	if e := file.Close(); err == nil {
		err = e
	}
	return err
}

// body is what a client sends. That it cannot be read is the client's fault.
type body struct{ io.Reader }

func (b body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = &status{http.StatusBadRequest, "error reading the body: " + err.Error()}
	}
	return n, err
}

// openWrite opens a regular file for writing, with its parents.
func openWrite(path string) (*os.File, os.FileInfo, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, nil, err
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0o666)
	if errors.Is(err, unix.EISDIR) {
		return nil, nil, &status{http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", path)}
	}
	if errors.Is(err, unix.ENXIO) { // a FIFO without reader, or a socket
		return nil, nil, notRegular(path)
	}
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return regular(fd, path)
}
