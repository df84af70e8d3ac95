package filesystem

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"

	"cubesandbox/guest/envdpb/filesystem"

	"connectrpc.com/connect"
)

func TestFilesystemService(t *testing.T) {
	home := t.TempDir()
	s := &Service{Runner: direct{home}, User: func(h http.Header) string { return h.Get("User") }}
	ctx := context.Background()
	as := func(r interface{ Header() http.Header }) { r.Header().Set("User", "user") }
	write(t, home+"/d/f", "12345")
	write(t, home+"/d/sub/deep/g", "")
	for link, target := range map[string]string{"to-file": "d/f", "to-dir": "d", "dangling": "none"} {
		if err := os.Symlink(target, home+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	stat := func(path string) (*filesystem.EntryInfo, error) {
		r := connect.NewRequest(&filesystem.StatRequest{Path: path})
		as(r)
		res, err := s.Stat(ctx, r)
		if err != nil {
			return nil, err
		}
		return res.Msg.Entry, nil
	}
	e, err := stat("d/f")
	if err != nil || e.Name != "f" || e.Path != home+"/d/f" || e.Size != 5 || e.Mode != 0o644 || e.Permissions != "-rw-r--r--" || e.Type != filesystem.FileType_FILE_TYPE_FILE || e.ModifiedTime == nil {
		t.Errorf("stat = %v, %v", e, err)
	}
	for link, want := range map[string]filesystem.FileType{
		"to-file": filesystem.FileType_FILE_TYPE_FILE, "to-dir": filesystem.FileType_FILE_TYPE_DIRECTORY, "dangling": filesystem.FileType_FILE_TYPE_SYMLINK,
	} {
		if e, err := stat(link); err != nil || e.Type != want || e.SymlinkTarget == nil || !e.IsSymlink {
			t.Errorf("stat %s = %v, %v; want type %v", link, e, err, want)
		}
	}
	list := func(path string, depth uint32) (names []string, err error) {
		r := connect.NewRequest(&filesystem.ListDirRequest{Path: path, Depth: depth})
		as(r)
		res, err := s.ListDir(ctx, r)
		if err != nil {
			return nil, err
		}
		for _, e := range res.Msg.Entries {
			names = append(names, strings.TrimPrefix(e.Path, home+"/"))
		}
		return names, nil
	}
	for depth, want := range map[uint32]string{0: "d/f d/sub", 1: "d/f d/sub", 2: "d/f d/sub d/sub/deep", 1 << 31: "d/f d/sub d/sub/deep d/sub/deep/g"} {
		if got, err := list("d", depth); err != nil || strings.Join(got, " ") != want {
			t.Errorf("list to depth %d = %v, %v; want %s", depth, got, err, want)
		}
	}
	if got, _ := list(".", 9); strings.Contains(strings.Join(got, " "), "to-dir/") {
		t.Errorf("list follows links: %v", got)
	}
	code := func(err error) connect.Code {
		if err == nil {
			return 0
		}
		return connect.CodeOf(err)
	}
	makeDir := func(path string) error {
		r := connect.NewRequest(&filesystem.MakeDirRequest{Path: path})
		as(r)
		_, err := s.MakeDir(ctx, r)
		return err
	}
	move := func(from, to string) error {
		r := connect.NewRequest(&filesystem.MoveRequest{Source: from, Destination: to})
		as(r)
		_, err := s.Move(ctx, r)
		return err
	}
	remove := func(path string) error {
		r := connect.NewRequest(&filesystem.RemoveRequest{Path: path})
		as(r)
		_, err := s.Remove(ctx, r)
		return err
	}
	_, listFile := list("d/f", 1)
	_, listNone := list("none", 1)
	_, statNone := stat("none")
	for name, c := range map[string]struct {
		got  error
		want connect.Code
	}{
		"list a file":         {listFile, connect.CodeInvalidArgument},
		"list nothing":        {listNone, connect.CodeNotFound},
		"stat nothing":        {statNone, connect.CodeNotFound},
		"make a new one":      {makeDir("x/y"), 0},
		"make an old one":     {makeDir("x"), connect.CodeAlreadyExists},
		"make over a file":    {makeDir("d/f"), connect.CodeInvalidArgument},
		"make below a file":   {makeDir("d/f/g"), connect.CodeInvalidArgument},
		"move nothing":        {move("none", "z"), connect.CodeNotFound},
		"move to new parents": {move("d/f", "new/parents/f"), 0},
		"remove a tree":       {remove("d"), 0},
		"remove nothing":      {remove("d"), 0},
	} {
		if code(c.got) != c.want {
			t.Errorf("%s: %v, want code %v", name, c.got, c.want)
		}
	}
	if _, err := os.Stat(home + "/new/parents/f"); err != nil {
		t.Error(err)
	}
	r := connect.NewRequest(&filesystem.StatRequest{Path: "x"})
	r.Header().Set("User", "stranger")
	if _, err := s.Stat(ctx, r); code(err) != connect.CodeUnauthenticated {
		t.Errorf("unknown user: %v", err)
	}
}
