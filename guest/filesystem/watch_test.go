package filesystem

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/envdpb/filesystem/filesystemconnect"
	"cubesandbox/guest/users"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// apart is direct on a thread of its own, whose current directory may change.
type apart struct{ direct }

func (a apart) Do(ctx context.Context, name string, f func(users.User) error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			done <- err
			return
		}
		done <- a.direct.Do(ctx, name, f)
	}()
	return <-done
}

// serve serves a Service, over HTTP in JSON as the SDKs do.
func serve(t *testing.T) (filesystemconnect.FilesystemClient, string) {
	t.Helper()
	home := t.TempDir()
	runner := apart{direct{home}}
	_, handler := filesystemconnect.NewFilesystemHandler(&Service{
		Runner: runner, Watchers: NewWatchers(runner), User: func(http.Header) string { return "user" },
	})
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return filesystemconnect.NewFilesystemClient(srv.Client(), srv.URL, connect.WithProtoJSON()), home
}

func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestAStreamOfChangesStartsAndSaysThatItIsAlive(t *testing.T) {
	c, home := serve(t)
	write(t, home+"/d/sub/f", "")
	req := connect.NewRequest(&filesystem.WatchDirRequest{Path: "d", Recursive: true, IncludeEntry: true})
	req.Header().Set("Keepalive-Ping-Interval", "1")
	stream, err := c.WatchDir(patience(t), req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatalf("first came %v, %v", stream.Msg(), stream.Err())
	}
	if !stream.Receive() || stream.Msg().GetKeepalive() == nil {
		t.Fatalf("then came %v, %v", stream.Msg(), stream.Err())
	}
	write(t, home+"/d/sub/f", "12345")
	for {
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		e := stream.Msg().GetFilesystem()
		if e.GetName() != "sub/f" || e.GetType() != filesystem.EventType_EVENT_TYPE_WRITE || e.Entry.GetPath() != home+"/d/sub/f" {
			t.Fatalf("got %v", stream.Msg())
		}
		if e.Entry.Size == 5 { // the first is of making it empty
			return
		}
	}
}

func TestAStreamEndsWithItsTime(t *testing.T) {
	c, _ := serve(t)
	req := connect.NewRequest(&filesystem.WatchDirRequest{Path: "~"})
	req.Header().Set("Connect-Timeout-Ms", "100") // told to the server alone
	stream, err := c.WatchDir(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
	}
	if connect.CodeOf(stream.Err()) != connect.CodeDeadlineExceeded || !strings.Contains(stream.Err().Error(), "the time of the watch is over") {
		t.Errorf("got %v", stream.Err())
	}
}

func TestAWatcherIsPolledAndRemoved(t *testing.T) {
	c, home := serve(t)
	ctx := patience(t)
	made, err := c.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "."}))
	if err != nil {
		t.Fatal(err)
	}
	id := made.Msg.WatcherId
	if len(id) != 21 || id[0] != 'w' {
		t.Errorf("id %q", id)
	}
	write(t, home+"/a\xff\xfe\nb", "x")
	get := connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id})
	var got []string
	for len(got) < 2 {
		res, err := c.GetWatcherEvents(ctx, get)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range res.Msg.Events {
			got = append(got, fmt.Sprint(e.Type, " ", e.Name, " ", e.Entry != nil))
		}
	}
	if want := "EVENT_TYPE_CREATE a\uFFFD\nb false|EVENT_TYPE_WRITE a\uFFFD\nb false"; strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	remove := connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id})
	if _, err := c.RemoveWatcher(ctx, remove); err != nil {
		t.Error(err)
	}
	for range 2 {
		_, err := c.GetWatcherEvents(ctx, get)
		_, again := c.RemoveWatcher(ctx, remove)
		for _, err := range []error{err, again} {
			if connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "watcher with id "+id+" not found") {
				t.Errorf("after its end: %v", err)
			}
		}
	}
}

func TestWhatCannotBeWatchedHasItsCode(t *testing.T) {
	c, home := serve(t)
	write(t, home+"/f", "")
	if err := os.Symlink("loop", home+"/loop"); err != nil {
		t.Fatal(err)
	}
	ctx := patience(t)
	for path, want := range map[string]connect.Code{
		"f": connect.CodeInvalidArgument, "none": connect.CodeNotFound, "f/x": connect.CodeInvalidArgument,
		"loop": connect.CodeFailedPrecondition, "a\x00": connect.CodeInvalidArgument,
	} {
		_, err := c.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: path}))
		if connect.CodeOf(err) != want {
			t.Errorf("create %q: %v, want %v", path, err, want)
		}
		stream, err := c.WatchDir(ctx, connect.NewRequest(&filesystem.WatchDirRequest{Path: path}))
		if err == nil {
			stream.Receive()
			err = stream.Err()
			stream.Close()
		}
		if connect.CodeOf(err) != want {
			t.Errorf("watch %q: %v, want %v", path, err, want)
		}
	}
}

func TestAWatchEndsWithItsDirectory(t *testing.T) {
	c, home := serve(t)
	ctx := patience(t)
	if err := os.Mkdir(home+"/d", 0o755); err != nil {
		t.Fatal(err)
	}
	stream, err := c.WatchDir(ctx, connect.NewRequest(&filesystem.WatchDirRequest{Path: "d"}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatalf("first came %v, %v", stream.Msg(), stream.Err())
	}
	if _, err := c.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: "d"})); err != nil {
		t.Fatal(err)
	}
	var last *filesystem.FilesystemEvent
	for stream.Receive() {
		last = stream.Msg().GetFilesystem()
	}
	if last.GetName() != "." || last.GetType() != filesystem.EventType_EVENT_TYPE_REMOVE {
		t.Errorf("last came %v", last)
	}
	if err := stream.Err(); connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), home+"/d") {
		t.Errorf("it ended with %v", err)
	}
}
