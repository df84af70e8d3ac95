package filesystem

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cubesandbox/guest/spawn"
	"cubesandbox/guest/users"

	"golang.org/x/sys/unix"
)

// Files serves GET and POST /files.
type Files struct {
	Runner AsUser
	// Token returns the sandbox's access token, empty for none.
	Token func() string
	// DefaultUser returns the user of requests that name none.
	DefaultUser func() string

	turns turns
}

// status is an error with an HTTP status.
type status struct {
	code int
	text string
}

func (s *status) Error() string { return s.text }

func (f *Files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	op, serve := OpRead, f.download
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		op, serve = OpWrite, f.upload
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		WriteError(w, http.StatusMethodNotAllowed, "method not allowed")
		return
	}
	err := authorize(r, query, op, f.Token(), time.Now())
	if err != nil {
		WriteError(w, http.StatusUnauthorized, err.Error())
		return
	}
	if err := serve(w, r, query); err != nil {
		code, text := httpError(err)
		WriteError(w, code, text)
	}
}

// WriteError writes an error as envd does.
func WriteError(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Del("Content-Encoding")
	h.Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{code, text})
}

func httpError(err error) (int, string) {
	var s *status
	switch {
	case errors.As(err, &s):
		return s.code, s.text
	case errors.Is(err, users.ErrUnknown):
		return http.StatusUnauthorized, err.Error()
	case errors.Is(err, os.ErrPermission):
		return http.StatusForbidden, err.Error()
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return http.StatusInsufficientStorage, "not enough disk space available"
	case errors.Is(err, os.ErrNotExist):
		return http.StatusNotFound, err.Error()
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EISDIR):
		return http.StatusBadRequest, err.Error()
	}
	return http.StatusInternalServerError, err.Error()
}

func (f *Files) user(query url.Values) string {
	if name := query.Get("username"); name != "" {
		return name
	}
	return f.DefaultUser()
}

func (f *Files) download(w http.ResponseWriter, r *http.Request, query url.Values) error {
	var file *os.File
	var info os.FileInfo
	err := f.Runner.Do(r.Context(), f.user(query), func(u users.User) (err error) {
		file, info, err = openRead(spawn.Resolve(u, query.Get("path")))
		return err
	})
	if err != nil {
		return err
	}
	defer file.Close()
	encoding := accepted(r)
	if encoding == "" {
		return &status{http.StatusNotAcceptable, "no acceptable encoding: identity and gzip are supported"}
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": filepath.Base(file.Name())}))
	h.Set("Vary", "Accept-Encoding")
	switch {
	case encoding == "gzip":
		h.Set("Content-Encoding", "gzip")
		if r.Method == http.MethodHead {
			return nil
		}
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if _, err := io.Copy(z, file); err == nil {
			z.Close() // without its end the client knows that something is missing
		}
	case info.Size() == 0: // such as procfs, whose files have a size only when read
		io.Copy(w, file)
	default:
		http.ServeContent(w, r, "", info.ModTime(), file)
	}
	return nil
}

// openRead opens a regular file, without waiting for anything.
func openRead(path string) (*os.File, os.FileInfo, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil, &status{http.StatusNotFound, fmt.Sprintf("path '%s' does not exist", path)}
	}
	if errors.Is(err, unix.ENXIO) { // a socket, or a device that is not there
		return nil, nil, notRegular(path)
	}
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return regular(fd, path)
}

func notRegular(path string) error {
	return &status{http.StatusBadRequest, fmt.Sprintf("path '%s' is not a regular file", path)}
}

// regular returns the file of a descriptor that was opened without blocking, if
// it is a regular one.
func regular(fd int, path string) (*os.File, os.FileInfo, error) {
	if err := unix.SetNonblock(fd, false); err != nil {
		unix.Close(fd)
		return nil, nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	info, err := file.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = &status{http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", path)}
	case !info.Mode().IsRegular():
		err = notRegular(path)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// partial reports whether a request may be answered by less than the whole file.
func partial(h http.Header) bool {
	return h.Get("Range") != "" || h.Get("If-Modified-Since") != "" || h.Get("If-None-Match") != "" || h.Get("If-Range") != ""
}

// accepted returns the encoding to answer in: gzip if the client asks for it and
// the whole file is to be sent, identity, or "" if it wants neither.
func accepted(r *http.Request) string {
	identity, gz := true, false
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		q := strings.TrimSpace(params)
		refused := q == "q=0" || q == "q=0.0" || q == "q=0.00" || q == "q=0.000"
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip":
			gz = !refused
		case "identity":
			identity = !refused
		case "*":
			identity = identity && !refused
		}
	}
	switch {
	case gz && !partial(r.Header):
		return "gzip"
	case identity:
		return "identity"
	}
	return ""
}
