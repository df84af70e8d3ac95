package filesystem

import (
	"bytes"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
)

// TestOfTwoUploadsAtOnceTheLastToBeginStays: whole, although the other one goes on.
func TestOfTwoUploadsAtOnceTheLastToBeginStays(t *testing.T) {
	f, home := newFiles(t)
	body, send := io.Pipe()
	var first *httptest.ResponseRecorder
	var uploads sync.WaitGroup
	uploads.Go(func() { first = post(f, "path=a", octets, body) })
	old := bytes.Repeat([]byte("old"), piece)
	if _, err := send.Write(old); err != nil { // returns when all of it was read
		t.Fatal(err)
	}
	if w := post(f, "path=./a", octets, strings.NewReader("new"), "X-Metadata-Of", "new"); w.Code != 200 {
		t.Errorf("the second: %d %q", w.Code, w.Body)
	}
	if _, err := send.Write(old); err != nil {
		t.Fatal(err)
	}
	send.Close()
	uploads.Wait()
	if first.Code != 200 {
		t.Errorf("the first: %d %q", first.Code, first.Body)
	}
	if b, err := os.ReadFile(home + "/a"); string(b) != "new" || readMetadata(home + "/a")["of"] != "new" {
		t.Errorf("the file holds %d bytes, %.20q, %v", len(b), b, err)
	}
	if len(f.turns.last) != 0 {
		t.Errorf("%d turns are left", len(f.turns.last))
	}
}

func TestUploadsToOneFileByManyAreNeverMixed(t *testing.T) {
	f, home := newFiles(t)
	var uploads sync.WaitGroup
	for i := range 8 {
		text := strings.Repeat(string(rune('a'+i)), 5*piece/2)
		uploads.Go(func() {
			if w := post(f, "path=a", octets, strings.NewReader(text)); w.Code != 200 {
				t.Errorf("%d %q", w.Code, w.Body)
			}
		})
	}
	uploads.Wait()
	b, err := os.ReadFile(home + "/a")
	if err != nil || len(b) != 5*piece/2 || strings.Count(string(b), string(b[:1])) != len(b) {
		t.Errorf("%d bytes, of which %d are %.1q; %v", len(b), strings.Count(string(b), string(b[:1])), b, err)
	}
}

func TestAnUploadKeepsTheFileThatWasThere(t *testing.T) {
	f, home := newFiles(t)
	write(t, home+"/a", "old")
	if err := os.Link(home+"/a", home+"/hard"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", home+"/soft"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home+"/a", 0o600); err != nil {
		t.Fatal(err)
	}
	if w := post(f, "path=soft", octets, strings.NewReader("new")); w.Code != 200 {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
	info, err := os.Stat(home + "/a")
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if b, _ := os.ReadFile(home + "/hard"); string(b) != "new" {
		t.Errorf("by its other name it holds %q", b)
	}
}
