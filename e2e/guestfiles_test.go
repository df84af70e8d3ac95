package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/internal/local"

	rpc "connectrpc.com/connect"
)

// within opens a sandbox's agent for a test.
func within(t *testing.T, id cube.SandboxID) *local.Shell {
	t.Helper()
	shell := l.Shell(id, "")
	t.Cleanup(shell.Close)
	return shell
}

// files sends a request for /files and returns the status and what was answered.
func files(t *testing.T, in *local.Shell, method, route string, query url.Values, body io.Reader, header ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://guest:%d%s?%s", agentapi.EnvdPort, route, query.Encode()), body)
	noError(t, err, "request")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := in.Client().RoundTrip(r)
	noError(t, err, method+" "+route)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	noError(t, err, method+" "+route)
	return res.StatusCode, string(text)
}

func of(user, path string) url.Values { return url.Values{"username": {user}, "path": {path}} }

func download(t *testing.T, in *local.Shell, user, path string) (int, string) {
	t.Helper()
	return files(t, in, http.MethodGet, "/files", of(user, path), nil)
}

func upload(t *testing.T, in *local.Shell, user, path string, body io.Reader) (int, string) {
	t.Helper()
	return files(t, in, http.MethodPost, "/files", of(user, path), body, "Content-Type", "application/octet-stream")
}

func compose(t *testing.T, in *local.Shell, user, destination string, sources ...string) (int, string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"source_paths": sources, "destination": destination, "username": user})
	noError(t, err, "request")
	return files(t, in, http.MethodPost, "/files/compose", nil, bytes.NewReader(b), "Content-Type", "application/json")
}

// TestEachRequestForFilesHasTheRightsOfItsUser: also by links, and through folders that
// are open to nobody.
func TestEachRequestForFilesHasTheRightsOfItsUser(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	sh(t, id, `echo secret >/root/secret; chmod 600 /root/secret; chmod 700 /root; ln -s /root/secret /home/user/link; ln -s /root /home/user/dir
mkdir -m 755 /srv/ours; echo x >/srv/ours/f; echo own >/home/user/own; chown user:user /home/user/own`)
	in := within(t, id)
	for _, path := range []string{"/root/secret", "link", "dir/secret", "~/link", "/proc/1/environ"} {
		if code, text := download(t, in, "user", path); code != 403 || !strings.HasPrefix(text, `{"code":403,"message":`) {
			t.Errorf("download %s: %d %q", path, code, text)
		}
	}
	for _, path := range []string{"/root/new", "link", "dir/new", "/srv/ours/f", "/srv/ours/new", "/etc/passwd", "/new/dir/f"} {
		if code, text := upload(t, in, "user", path, strings.NewReader("mine")); code != 403 {
			t.Errorf("upload %s: %d %q", path, code, text)
		}
	}
	if code, text := compose(t, in, "user", "all", "own", "/root/secret"); code != 403 {
		t.Errorf("compose of what one may not read: %d %q", code, text)
	}
	if code, text := compose(t, in, "user", "/srv/ours/all", "own"); code != 403 {
		t.Errorf("compose where one may not write: %d %q", code, text)
	}
	c := in.Client().Files
	_, list := c.ListDir(t.Context(), as("user", &filesystem.ListDirRequest{Path: "dir"}))
	_, stat := c.Stat(t.Context(), as("user", &filesystem.StatRequest{Path: "/root/secret"}))
	_, made := c.MakeDir(t.Context(), as("user", &filesystem.MakeDirRequest{Path: "/srv/ours/d"}))
	_, moved := c.Move(t.Context(), as("user", &filesystem.MoveRequest{Source: "/srv/ours/f", Destination: "f"}))
	_, removed := c.Remove(t.Context(), as("user", &filesystem.RemoveRequest{Path: "/srv/ours/f"}))
	for what, err := range map[string]error{"list": list, "stat": stat, "make": made, "move": moved, "remove": removed} {
		if rpc.CodeOf(err) != rpc.CodePermissionDenied {
			t.Errorf("%s: %v, want permission denied", what, err)
		}
	}
	if code, text := download(t, in, "nobody-knows", "own"); code != 401 || !strings.Contains(text, "invalid username: 'nobody-knows'") {
		t.Errorf("an unknown user: %d %q", code, text)
	}
	// What the user makes is the user's; root may do all of it; what is deleted is not kept.
	if code, text := upload(t, in, "user", "d/e/f", strings.NewReader("mine")); code != 200 {
		t.Errorf("upload: %d %q", code, text)
	}
	if code, text := compose(t, in, "user", "all", "/srv/ours/f", "own"); code != 200 || !strings.Contains(text, `"kept":["/srv/ours/f"]`) {
		t.Errorf("compose of what one may not delete: %d %q", code, text)
	}
	if code, text := upload(t, in, "root", "/srv/ours/new", strings.NewReader("root's")); code != 200 {
		t.Errorf("upload as root: %d %q", code, text)
	}
	got := sh(t, id, "stat -c '%U:%G %a %n' /home/user/d /home/user/d/e /home/user/d/e/f /home/user/all /srv/ours/new; cat /home/user/all /root/secret")
	want := "user:user 755 /home/user/d\nuser:user 755 /home/user/d/e\nuser:user 644 /home/user/d/e/f\nuser:user 644 /home/user/all\nroot:root 644 /srv/ours/new\nx\nown\nsecret"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// Nobody sees the agent's own files, whoever asks.
	if code, text := download(t, in, "root", "/boot/cube-guest"); code != 404 {
		t.Errorf("the agent: %d, %d bytes", code, len(text))
	}
}

// TestOnAFullDiskAnUploadIsRefusedAndNothingIsHalfComposed: and both work again when
// there is room.
func TestOnAFullDiskAnUploadIsRefusedAndNothingIsHalfComposed(t *testing.T) {
	alone(t, func(_ cube.SandboxID, _ <-chan cube.Event) {
		id := small(t, func(l *cube.Limits) { l.DiskMiB = 64 })
		in := within(t, id)
		part := bytes.Repeat([]byte("0123456789abcdef"), 20<<16) // 20 MiB
		for _, name := range []string{"a", "b"} {
			if code, text := upload(t, in, "user", name, bytes.NewReader(part)); code != 200 {
				t.Fatalf("upload: %d %q", code, text)
			}
		}
		sh(t, id, "echo 'as it was' >/home/user/all; chown user:user /home/user/all")
		// Both the parts and the whole are there while it is made: 80 of 64 MiB.
		if code, text := compose(t, in, "user", "all", "a", "b"); code != 507 || !strings.HasPrefix(text, `{"code":507,"message":"not enough disk space available`) {
			t.Errorf("compose: %d %q", code, text)
		}
		if got := sh(t, id, "cd /home/user; ls -A | grep -v '^[.]bash\\|^[.]profile'; cat all"); got != "a\nall\nb\nas it was" {
			t.Errorf("after that there is %q", got)
		}
		if code, text := upload(t, in, "user", "c", io.LimitReader(same{}, 100<<20)); code != 507 || !strings.HasPrefix(text, `{"code":507,`) {
			t.Errorf("upload: %d %q", code, text)
		}
		sh(t, id, "rm /home/user/c")
		if code, text := compose(t, in, "user", "all", "b"); code != 200 {
			t.Errorf("with room: %d %q", code, text)
		}
		if code, text := upload(t, in, "user", "b", bytes.NewReader(part[:1<<20])); code != 200 {
			t.Errorf("with room: %d %q", code, text)
		}
		runs(t, id, 1)
	})
}

// same is a file without end.
type same struct{}

func (same) Read(b []byte) (int, error) { return len(b), nil }

// TestNothingThatCanBeNamedHoldsTheAgent: FIFOs, devices, sockets, circles, files that
// have no length, none of which it waits for.
func TestNothingThatCanBeNamedHoldsTheAgent(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	python(t, id, `import os, socket
os.chdir('/root')
os.mkfifo('fifo'); os.symlink('self', 'self'); os.symlink('fifo', 'to-fifo')
socket.socket(socket.AF_UNIX).bind('socket')
os.mknod('tty', 0o20666, os.makedev(5, 0)); os.mknod('zero', 0o20666, os.makedev(1, 5))
open('empty', 'w').close()
with open('sparse', 'wb') as f:
    f.truncate(10 << 30); f.seek(5 << 30); f.write(b'here')
os.utime('empty', (0, 1 << 40)); open('old', 'w').close(); os.utime('old', (0, -(1 << 40)))
os.open(b'bytes \xff\xfe', os.O_CREAT); os.open(b'new\nline', os.O_CREAT)
`)
	in := within(t, id)
	for path, want := range map[string]int{
		"fifo": 400, "to-fifo": 400, "socket": 400, "tty": 400, "zero": 400, "self": 400, ".": 400, "empty": 200,
		"/proc/version": 200, "/proc/1/status": 200, "/proc/meminfo": 200, "/sys/fs/cgroup/cgroup.controllers": 200, "bytes \xff\xfe": 200, "new\nline": 200,
	} {
		code, text := download(t, in, "root", path)
		if code != want || strings.HasPrefix(path, "/proc") && len(text) < 20 {
			t.Errorf("download %s: %d %.200q, want %d", path, code, text, want)
		}
		if want == 400 {
			if code, text := upload(t, in, "root", path, strings.NewReader("x")); code != 400 {
				t.Errorf("upload %s: %d %.200q, want 400", path, code, text)
			}
			if code, text := compose(t, in, "root", "all", path); code != 400 {
				t.Errorf("compose %s: %d %.200q, want 400", path, code, text)
			}
		}
	}
	if code, text := files(t, in, http.MethodGet, "/files", of("root", "sparse"), nil, "Range", fmt.Sprintf("bytes=%d-%d", 5<<30, 5<<30+5)); code != 206 || text != "here\x00\x00" {
		t.Errorf("a range of a sparse file: %d %.100q", code, text)
	}
	res, err := in.Client().Files.ListDir(t.Context(), as("root", &filesystem.ListDirRequest{Path: "/root"}))
	noError(t, err, "list")
	names := map[string]bool{}
	for _, e := range res.Msg.Entries {
		names[e.Name] = true
	}
	for _, want := range []string{"fifo", "socket", "zero", "self", "bytes \uFFFD", "new\nline", "empty", "old", "sparse"} {
		if !names[want] {
			t.Errorf("%q is not listed in %v", want, names)
		}
	}
}

// TestADirectoryOfFiftyThousandIsListedWhole: in make test, of five thousand. One more
// than fifty thousand is refused.
func TestADirectoryOfFiftyThousandIsListedWhole(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	n := 5_000
	if lab.Form() != "" {
		n = 50_000
	}
	python(t, id, fmt.Sprintf(`import os
os.mkdir('/root/many'); os.chdir('/root/many')
for i in range(%d):
    os.mknod('%%d' %% i)
`, n))
	in := within(t, id)
	r := as("root", &filesystem.ListDirRequest{Path: "many"})
	// Of the client's choice: the messages of the engine's own are shorter.
	code, text := files(t, in, http.MethodPost, "/filesystem.Filesystem/ListDir", nil, strings.NewReader(`{"path":"/root/many"}`),
		"Content-Type", "application/json", "Authorization", r.Header().Get("Authorization"))
	var got struct{ Entries []struct{ Name string } }
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != 200 || len(got.Entries) != n || got.Entries[1].Name != "1" || got.Entries[2].Name != "10" {
		t.Errorf("%d, %d entries, %v", code, len(got.Entries), err)
	}
	sh(t, id, "touch /root/many/more")
	_, err := in.Client().Files.ListDir(t.Context(), r)
	if n == 50_000 && rpc.CodeOf(err) != rpc.CodeResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	_, err = in.Client().Files.Remove(t.Context(), as("root", &filesystem.RemoveRequest{Path: "many"}))
	noError(t, err, "remove")
	sh(t, id, "test ! -e /root/many")
}

// TestAFormKeepsTheFoldersOfItsNames: as browsers and E2B's clients send it.
func TestAFormKeepsTheFoldersOfItsNames(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for name, text := range map[string]string{"a/b/1": "one", "/tmp/c/2": "two", "~/3": "three"} {
		part, err := form.CreateFormFile("file", name)
		noError(t, err, "form")
		io.WriteString(part, text)
	}
	noError(t, form.Close(), "form")
	in := within(t, id)
	code, text := files(t, in, http.MethodPost, "/files", url.Values{"username": {"user"}}, &body, "Content-Type", form.FormDataContentType())
	if code != 200 || strings.Count(text, `"type":"file"`) != 3 {
		t.Errorf("%d %q", code, text)
	}
	if got := sh(t, id, "cat /home/user/a/b/1 /tmp/c/2 /home/user/3"); got != "onetwothree" {
		t.Errorf("got %q", got)
	}
}
