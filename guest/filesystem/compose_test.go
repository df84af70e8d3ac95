package filesystem

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func compose(f *Files, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.Compose(w, httptest.NewRequest(http.MethodPost, "/files/compose", strings.NewReader(body)))
	return w
}

func TestFilesAreComposedInTheirOrderAndDeleted(t *testing.T) {
	f, home := newFiles(t)
	write(t, home+"/p/1", "one ")
	write(t, home+"/p/2", "two ")
	write(t, home+"/p/empty", "")
	write(t, home+"/old", "what was there")
	w := compose(f, `{"source_paths":["p/2","~/p/empty","`+home+`/p/1"],"destination":"new/dir/all","username":"user"}`)
	var got composed
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got.Name != "all" || got.Path != home+"/new/dir/all" || got.Type != "file" || got.Kept != nil {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
	if b, err := os.ReadFile(home + "/new/dir/all"); string(b) != "two one " {
		t.Errorf("got %q, %v", b, err)
	}
	if left, _ := os.ReadDir(home + "/p"); len(left) != 0 {
		t.Errorf("%d sources are left", len(left))
	}
	if w := compose(f, `{"source_paths":["new/dir/all","new/dir/all"],"destination":"old"}`); w.Code != 200 {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
	if b, _ := os.ReadFile(home + "/old"); string(b) != "two one two one " {
		t.Errorf("in place of another: %q", b)
	}
}

func TestWhatCannotBeComposedChangesNothing(t *testing.T) {
	f, home := newFiles(t)
	write(t, home+"/a", "a")
	write(t, home+"/to", "as it was")
	if err := unix.Mkfifo(home+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]int{
		`{`:                                      400,
		`{"source_paths":[],"destination":"to"}`: 400,
		`{"source_paths":["a"]}`:                 400,
		`{"source_paths":["a",""],"destination":"to"}`:                                        400,
		`{"source_paths":["a\u0000"],"destination":"to"}`:                                     400,
		`{"source_paths":["a","./to"],"destination":"to"}`:                                    400,
		`{"source_paths":["a","none"],"destination":"to"}`:                                    404,
		`{"source_paths":["a","fifo"],"destination":"to"}`:                                    400,
		`{"source_paths":["a","/dev/zero"],"destination":"to"}`:                               400,
		`{"source_paths":["a","."],"destination":"to"}`:                                       400,
		`{"source_paths":["a"],"destination":"."}`:                                            400,
		`{"source_paths":["a"],"destination":"to/x"}`:                                         400,
		`{"source_paths":["a"],"destination":"to","username":"x"}`:                            401,
		`{"destination":"to","source_paths":["a"` + strings.Repeat(`,"a"`, maxSources) + `]}`: 400,
		`{"destination":"` + strings.Repeat("x", maxCompose) + `"}`:                           400,
	} {
		w := compose(f, body)
		if w.Code != want || !strings.HasPrefix(w.Body.String(), fmt.Sprintf(`{"code":%d,"message":"`, want)) {
			t.Errorf("%.80s: %d %q, want %d", body, w.Code, w.Body, want)
		}
	}
	names, err := filepath.Glob(home + "/*")
	hidden, _ := filepath.Glob(home + "/.*")
	if len(names) != 3 || len(hidden) != 0 {
		t.Errorf("there are %q and %q, %v", names, hidden, err)
	}
	for name, want := range map[string]string{"a": "a", "to": "as it was"} {
		if b, _ := os.ReadFile(home + "/" + name); string(b) != want {
			t.Errorf("%s holds %q", name, b)
		}
	}
}
