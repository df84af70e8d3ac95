package filesystem

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"cubesandbox/guest/envdpb/filesystem"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// TestAListOfAnythingIsAMessage: what users can name and date, clients can read.
func TestAListOfAnythingIsAMessage(t *testing.T) {
	c, home := serve(t)
	for _, name := range []string{"new\nline", "bytes \xff\xfe\x80", "\"quotes\\", strings.Repeat("n", 255), "\u2028"} {
		write(t, home+"/"+name, "")
	}
	if err := os.Symlink("\xff target", home+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(home+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("self", home+"/self"); err != nil {
		t.Fatal(err)
	}
	res, err := c.ListDir(patience(t), connect.NewRequest(&filesystem.ListDirRequest{Path: "."}))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]filesystem.FileType{}
	for _, e := range res.Msg.Entries {
		names[e.Name] = e.Type
	}
	for name, want := range map[string]filesystem.FileType{
		"new\nline": filesystem.FileType_FILE_TYPE_FILE, "bytes \uFFFD": filesystem.FileType_FILE_TYPE_FILE,
		"fifo": filesystem.FileType_FILE_TYPE_UNSPECIFIED, "self": filesystem.FileType_FILE_TYPE_SYMLINK,
	} {
		if got, ok := names[name]; !ok || got != want {
			t.Errorf("%q is %v, %v", name, got, ok)
		}
	}
	if len(names) != 8 {
		t.Errorf("got %d entries", len(names))
	}
}

func TestTimesThatNoMessageCanCarryAreTheNearestThatOneCan(t *testing.T) {
	for _, at := range []time.Time{time.Unix(-1<<40, 0), time.Unix(1<<40, 0), {}, time.Unix(0, 1), latest} {
		if err := timestamp(at).CheckValid(); err != nil {
			t.Errorf("%v: %v", at, err)
		}
	}
}

func TestALinkThatLeadsInACircleIsRefused(t *testing.T) {
	c, home := serve(t)
	if err := os.Symlink("self", home+"/self"); err != nil {
		t.Fatal(err)
	}
	ctx := patience(t)
	_, list := c.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: "self"}))
	_, make := c.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: "self/d"}))
	for what, err := range map[string]error{"list": list, "make": make} {
		if connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("%s: %v", what, err)
		}
	}
	if e, err := c.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: "self"})); err != nil || !e.Msg.Entry.IsSymlink {
		t.Errorf("stat: %v, %v", e, err)
	}
	f, _ := newFiles(t)
	if w := get(f, "path="+httpEscape(home+"/self")); w.Code != 400 {
		t.Errorf("download: %d %q", w.Code, w.Body)
	}
}

func TestTooManyEntriesAreRefusedAndNotLeftOut(t *testing.T) {
	_, home := newFiles(t)
	for _, name := range []string{"a", "b/c", "b/d"} {
		write(t, home+"/"+name, "")
	}
	for room, want := range map[int]error{4: nil, 3: errTooMany, 0: errTooMany} {
		l := listing{entries: make([]*filesystem.EntryInfo, maxEntries-room), long: new(gate)}
		err := l.add(home, 2, 0)
		if !errors.Is(err, want) || want == nil && len(l.entries) != maxEntries {
			t.Errorf("with room for %d: %d entries, %v", room, len(l.entries), err)
		}
		if room > 0 && l.long.try() {
			t.Error("another long list could begin")
		}
		l.end()
	}
	if code := connect.CodeOf(rpcError(errTooMany)); code != connect.CodeResourceExhausted {
		t.Errorf("its code is %v", code)
	}
}
