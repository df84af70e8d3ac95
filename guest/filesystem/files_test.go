package filesystem

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"cubesandbox/guest/users"

	"golang.org/x/sys/unix"
)

// direct runs work as whoever runs the test, whose home is a new directory.
type direct struct{ home string }

func (d direct) Do(_ context.Context, name string, f func(users.User) error) error {
	if name != "user" {
		return fmt.Errorf("%w: '%s'", users.ErrUnknown, name)
	}
	return f(users.User{Name: name, Home: d.home})
}

func newFiles(t *testing.T) (*Files, string) {
	t.Helper()
	home := t.TempDir()
	return &Files{Runner: direct{home}, Token: func() string { return "" }, DefaultUser: func() string { return "user" }}, home
}

func httpEscape(s string) string { return url.QueryEscape(s) }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(f *Files, query string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/files?"+query, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

func TestDownload(t *testing.T) {
	f, home := newFiles(t)
	write(t, home+"/a.txt", "0123456789")
	if err := unix.Mkfifo(home+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		query  string
		header []string
		code   int
		body   string
	}{
		"whole":         {"path=a.txt", nil, 200, "0123456789"},
		"home":          {"path=~/a.txt", nil, 200, "0123456789"},
		"absolute":      {"path=" + home + "/a.txt&username=user", nil, 200, "0123456789"},
		"range":         {"path=a.txt", []string{"Range", "bytes=2-4"}, 206, "234"},
		"range, gzip":   {"path=a.txt", []string{"Range", "bytes=2-4", "Accept-Encoding", "gzip"}, 206, "234"},
		"missing":       {"path=b", nil, 404, `{"code":404,"message":"path '` + home + `/b' does not exist"}` + "\n"},
		"directory":     {"path=.", nil, 400, `{"code":400,"message":"path '` + home + `' is a directory"}` + "\n"},
		"no path":       {"", nil, 400, `{"code":400,"message":"path '` + home + `' is a directory"}` + "\n"},
		"fifo":          {"path=fifo", nil, 400, `{"code":400,"message":"path '` + home + `/fifo' is not a regular file"}` + "\n"},
		"device":        {"path=/dev/zero", nil, 400, `{"code":400,"message":"path '/dev/zero' is not a regular file"}` + "\n"},
		"user":          {"path=a.txt&username=x", nil, 401, `{"code":401,"message":"invalid username: 'x'"}` + "\n"},
		"no encoding":   {"path=a.txt", []string{"Accept-Encoding", "identity;q=0, br"}, 406, `{"code":406,"message":"no acceptable encoding: identity and gzip are supported"}` + "\n"},
		"only any, not": {"path=a.txt", []string{"Accept-Encoding", "*;q=0"}, 406, `{"code":406,"message":"no acceptable encoding: identity and gzip are supported"}` + "\n"},
		"through file":  {"path=a.txt/x", nil, 400, ""},
	} {
		w := get(f, c.query, c.header...)
		if w.Code != c.code || c.body != "" && w.Body.String() != c.body {
			t.Errorf("%s: %d %q, want %d %q", name, w.Code, w.Body, c.code, c.body)
		}
	}
	if got := get(f, "path=a.txt").Header().Get("Content-Disposition"); got != `inline; filename=a.txt` {
		t.Errorf("Content-Disposition %q", got)
	}
}

func TestDownloadOfProcfsIsWhole(t *testing.T) {
	f, _ := newFiles(t)
	w := get(f, "path=/proc/self/status")
	if w.Code != 200 || !strings.Contains(w.Body.String(), "Name:") {
		t.Errorf("%d %.100q", w.Code, w.Body)
	}
}

func TestDownloadAsGzip(t *testing.T) {
	f, home := newFiles(t)
	text := strings.Repeat("text ", 10000)
	write(t, home+"/a", text)
	w := get(f, "path=a", "Accept-Encoding", "br, gzip;q=0.8")
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(z)
	if err != nil || string(got) != text || w.Header().Get("Content-Encoding") != "gzip" {
		t.Errorf("%d bytes, %v, %v", len(got), err, w.Header())
	}
}

func post(f *Files, query, kind string, body io.Reader, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/files?"+query, body)
	r.Header.Set("Content-Type", kind)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

const octets = "application/octet-stream"

func TestUploadOfOneFile(t *testing.T) {
	f, home := newFiles(t)
	write(t, home+"/d/old", "a longer text than the new")
	for path, text := range map[string]string{"new/dir/x": "one", "d/old": "new", "empty": ""} {
		w := post(f, "path="+path, octets, strings.NewReader(text))
		var got []uploaded
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Errorf("%s: %d %q", path, w.Code, w.Body)
			continue
		}
		want := []uploaded{{filepath.Base(path), filepath.Join(home, path), "file", nil}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: answer %+v, want %+v", path, got, want)
		}
		if b, err := os.ReadFile(filepath.Join(home, path)); err != nil || string(b) != text {
			t.Errorf("%s holds %q, %v; want %q", path, b, err, text)
		}
	}
}

func TestUploadOfGzip(t *testing.T) {
	f, home := newFiles(t)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte("unpacked"))
	z.Close()
	if w := post(f, "path=a", octets, &b, "Content-Encoding", "gzip"); w.Code != 200 {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
	if got, _ := os.ReadFile(home + "/a"); string(got) != "unpacked" {
		t.Errorf("file holds %q", got)
	}
}

// form is a multipart body of (form name, file name, content) triples.
func form(t *testing.T, parts ...[3]string) (io.Reader, string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		h := textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf(`form-data; name=%q; filename=%q`, p[0], p[1])}}
		part, err := w.CreatePart(h)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(part, p[2])
	}
	w.Close()
	return &b, w.FormDataContentType()
}

func TestUploadOfAFormKeepsDirectories(t *testing.T) {
	f, home := newFiles(t)
	body, kind := form(t, [3]string{"file", "a/b/c.txt", "1"}, [3]string{"other", "no", "2"}, [3]string{"file", home + "/abs", "3"})
	if w := post(f, "", kind, body); w.Code != 200 {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
	for path, want := range map[string]string{"a/b/c.txt": "1", "abs": "3"} {
		if got, err := os.ReadFile(filepath.Join(home, path)); string(got) != want {
			t.Errorf("%s holds %q, %v", path, got, err)
		}
	}
	if _, err := os.Stat(home + "/no"); err == nil {
		t.Error("a part with another name was written")
	}
	body, kind = form(t, [3]string{"file", "ignored", "x"})
	if w := post(f, "path=given", kind, body); w.Code != 200 {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
	if _, err := os.Stat(home + "/given"); err != nil {
		t.Error(err)
	}
}

func TestWrongUploads(t *testing.T) {
	f, home := newFiles(t)
	if err := unix.Mkfifo(home+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	twice, twiceKind := form(t, [3]string{"file", "x", "1"}, [3]string{"file", "./x", "2"})
	nameless, namelessKind := form(t, [3]string{"file", "", "1"})
	for name, c := range map[string]struct {
		query, kind string
		body        io.Reader
		header      []string
		code        int
	}{
		"no type":        {"path=a", "", strings.NewReader(""), nil, 400},
		"other type":     {"path=a", "text/plain", strings.NewReader(""), nil, 400},
		"no path":        {"", octets, strings.NewReader(""), nil, 400},
		"directory":      {"path=.", octets, strings.NewReader(""), nil, 400},
		"fifo":           {"path=fifo", octets, strings.NewReader(""), nil, 400},
		"device":         {"path=/dev/null", octets, strings.NewReader(""), nil, 400},
		"NUL":            {"path=a%00b", octets, strings.NewReader(""), nil, 400},
		"user":           {"path=a&username=x", octets, strings.NewReader(""), nil, 401},
		"twice":          {"", twiceKind, twice, nil, 400},
		"no filename":    {"", namelessKind, nameless, nil, 400},
		"no boundary":    {"", "multipart/form-data", strings.NewReader("x"), nil, 400},
		"cut form":       {"", twiceKind, strings.NewReader("--x\r\n"), nil, 400},
		"not gzip":       {"path=a", octets, strings.NewReader("x"), []string{"Content-Encoding", "gzip"}, 400},
		"other encoding": {"path=a", octets, strings.NewReader("x"), []string{"Content-Encoding", "br"}, 400},
		"cut body":       {"path=a", octets, io.MultiReader(strings.NewReader("x"), broken{}), nil, 400},
		"metadata":       {"path=a", octets, strings.NewReader("x"), []string{"X-Metadata-K", "a\x01"}, 400},
		"much metadata":  {"path=a", octets, strings.NewReader("x"), []string{"X-Metadata-K", strings.Repeat("x", 5000)}, 400},
	} {
		w := post(f, c.query, c.kind, c.body, c.header...)
		if w.Code != c.code || !strings.HasPrefix(w.Body.String(), fmt.Sprintf(`{"code":%d,"message":"`, c.code)) {
			t.Errorf("%s: %d %q, want %d", name, w.Code, w.Body, c.code)
		}
	}
}

// broken is a body that cannot be read.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the client went away") }

func TestMetadataGoesWithTheFile(t *testing.T) {
	f, home := newFiles(t)
	if w := post(f, "path=a", octets, strings.NewReader("x"), "X-Metadata-Author", "me", "X-Metadata-Kind", "t"); w.Code != 200 || !strings.Contains(w.Body.String(), `"author":"me"`) {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
	if got, want := readMetadata(home+"/a"), map[string]string{"author": "me", "kind": "t"}; !reflect.DeepEqual(got, want) {
		t.Errorf("metadata %v, want %v", got, want)
	}
	post(f, "path=a", octets, strings.NewReader("x"), "X-Metadata-Kind", "u")
	if got, want := readMetadata(home+"/a"), map[string]string{"kind": "u"}; !reflect.DeepEqual(got, want) {
		t.Errorf("after another upload %v, want %v", got, want)
	}
	post(f, "path=a", octets, strings.NewReader("x"))
	if got := readMetadata(home + "/a"); got != nil {
		t.Errorf("after an upload without any %v", got)
	}
}

func FuzzUpload(f *testing.F) {
	files := &Files{Runner: direct{f.TempDir()}, Token: func() string { return "" }, DefaultUser: func() string { return "user" }}
	f.Add("multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nb\r\n--x--", "")
	f.Add(octets, "abc", "gzip, identity;q=0")
	f.Fuzz(func(t *testing.T, kind, body, accept string) {
		r := httptest.NewRequest(http.MethodPost, "/files", strings.NewReader(body))
		r.Header["Content-Type"] = []string{kind}
		// A user that does not exist: nothing is written, all is parsed.
		r.URL.RawQuery = "username=nobody"
		w := httptest.NewRecorder()
		files.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%q %q: %d %q", kind, body, w.Code, w.Body)
		}
		r.Header["Accept-Encoding"] = []string{accept}
		if e := accepted(r); e != "" && e != "gzip" && e != "identity" {
			t.Errorf("encoding %q", e)
		}
	})
}
