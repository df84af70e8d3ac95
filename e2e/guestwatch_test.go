package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
	"cubesandbox/guest/envdpb/filesystem"

	rpc "connectrpc.com/connect"
)

// as is a request of a user's.
func as[T any](user string, msg *T) *rpc.Request[T] {
	r := rpc.NewRequest(msg)
	r.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	return r
}

// watcher makes a watcher in a sandbox, as a user, and returns its id.
func watcher(t *testing.T, id cube.SandboxID, user string, m *filesystem.CreateWatcherRequest) string {
	t.Helper()
	shell := l.Shell(id, "")
	defer shell.Close()
	res, err := shell.Client().Files.CreateWatcher(t.Context(), as(user, m))
	noError(t, err, "watch "+m.Path)
	return res.Msg.WatcherId
}

// seen polls a watcher until all of these have come, and returns all that came.
func seen(t *testing.T, id cube.SandboxID, watcher string, wanted ...string) (lines []string) {
	t.Helper()
	shell := l.Shell(id, "")
	defer shell.Close()
	noError(t, lab.Until(20*time.Second, strings.Join(wanted, ", "), func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		res, err := shell.Client().Files.GetWatcherEvents(ctx, rpc.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: watcher}))
		if err != nil {
			return err
		}
		for _, e := range res.Msg.Events {
			line := strings.ToLower(strings.TrimPrefix(e.Type.String(), "EVENT_TYPE_")) + " " + e.Name
			if e.Entry != nil {
				line += " of " + e.Entry.Owner
			}
			lines = append(lines, line)
		}
		for _, want := range wanted {
			if !slices.Contains(lines, want) {
				return missing{want, lines}
			}
		}
		return nil
	}), "events")
	return lines
}

// missing is an event that did not come.
type missing struct {
	want string
	got  []string
}

func (m missing) Error() string {
	return "no " + m.want + " in " + strings.Join(m.got[max(0, len(m.got)-20):], ", ")
}

// TestAWatcherGoesOnThroughEveryVerb: what was not asked for when an image was made is
// told in every life of it, and what changes then too.
func TestAWatcherGoesOnThroughEveryVerb(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	sh(t, id, "mkdir -p /root/w/was")
	w := watcher(t, id, "root", &filesystem.CreateWatcherRequest{Path: "w", Recursive: true, IncludeEntry: true})
	sh(t, id, "mkdir -p /root/w/before/deep; touch /root/w/before/deep/f /root/w/was/f")
	seen(t, id, w, "create before/deep/f of root", "create was/f of root")
	sh(t, id, "touch /root/w/untold")
	snapshot := save(t, id)
	copied := clone(t, id, 1)[0]
	for what, id := range map[string]cube.SandboxID{"source": id, "clone": copied} {
		sh(t, id, "mkdir -p /root/w/after/"+what+"; touch /root/w/after/"+what+"/f; echo >/root/w/before/deep/f")
		got := seen(t, id, w, "create untold of root", "create after/"+what+"/f of root", "write before/deep/f of root")
		if slices.ContainsFunc(got, func(s string) bool { return what == "source" && strings.Contains(s, "after/clone") }) {
			t.Errorf("the %s is told of the other's files: %q", what, got)
		}
	}
	if _, err := l.Engine.Rollback(t.Context(), id, snapshot); err != nil {
		t.Fatalf("rollback: %v", err)
	}
	sh(t, id, "touch /root/w/was/again")
	got := seen(t, id, w, "create untold of root", "create was/again of root")
	if slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "after") }) {
		t.Errorf("after the rollback it is told of what was not: %q", got)
	}
	sh(t, id, "mkdir /root/w/paused")
	resume(t, id, 9, pause(t, id, cube.Pausing{}).ID, false)
	sh(t, id, "touch /root/w/paused/f; rm -r /root/w/before")
	seen(t, id, w, "create paused of root", "create paused/f of root", "remove before/deep/f", "remove before")
}

// TestAWatcherHasTheRightsOfItsUser: gVisor itself lets everybody watch what one can name.
func TestAWatcherHasTheRightsOfItsUser(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	sh(t, id, "mkdir -p /home/user/open /root/secret /srv/shut/in; chmod 700 /root /srv/shut; ln -s /root/secret /home/user/link; chown -R user:user /home/user/open; mkdir -m 711 /srv/blind")
	shell := l.Shell(id, "")
	defer shell.Close()
	for path, want := range map[string]rpc.Code{
		"/root": rpc.CodePermissionDenied, "/root/secret": rpc.CodePermissionDenied, "link": rpc.CodePermissionDenied,
		"/srv/shut/in": rpc.CodePermissionDenied, "/srv/blind": rpc.CodePermissionDenied, "none": rpc.CodeNotFound, "/etc/passwd": rpc.CodeInvalidArgument,
	} {
		_, err := shell.Client().Files.CreateWatcher(t.Context(), as("user", &filesystem.CreateWatcherRequest{Path: path}))
		if rpc.CodeOf(err) != want {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	_, err := shell.Client().Files.CreateWatcher(t.Context(), as("nobody-knows", &filesystem.CreateWatcherRequest{Path: "/tmp"}))
	if rpc.CodeOf(err) != rpc.CodeUnauthenticated {
		t.Errorf("an unknown user: %v", err)
	}
	// Below what one may see, what one may not see is left out.
	w := watcher(t, id, "user", &filesystem.CreateWatcherRequest{Path: "/srv", Recursive: true})
	sh(t, id, "touch /srv/shut/in/f /srv/shut/f /srv/end; chown user /srv/end")
	if got := seen(t, id, w, "create end"); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "shut/") }) {
		t.Errorf("got %q", got)
	}
	// Root may kill the users' init, and with it their mount namespace: the watch belongs
	// to the agent.
	l.Run(t.Context(), id, "/bin/kill", "-9", "1")
	sh(t, id, "mkdir -m 755 /srv/again; touch /srv/again/f")
	seen(t, id, w, "create again/f")
}

// TestManyChangesAtOnceAreAllToldOrTheWatcherSaysThatSomeWereLost: in a kernel whose own
// queue of events has no end.
func TestManyChangesAtOnceAreAllToldOrTheWatcherSaysThatSomeWereLost(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	sh(t, id, "mkdir /root/w")
	w := watcher(t, id, "root", &filesystem.CreateWatcherRequest{Path: "/root/w", Recursive: true})
	python(t, id, `import os
for i in range(100):
    os.makedirs('/root/w/%d/d' % i)
    for j in range(20):
        open('/root/w/%d/d/%d' % (i, j), 'w').close()
open('/root/w/end', 'w').close()
`)
	counts := map[string]int{}
	for _, line := range seen(t, id, w, "create end") {
		counts[line]++
	}
	for i := range 100 {
		for j := range 20 {
			if line := fmt.Sprintf("create %d/d/%d", i, j); counts[line] != 1 {
				t.Errorf("%s came %d times", line, counts[line])
			}
		}
	}
	python(t, id, `import os
for i in range(50000):
    os.mknod('/root/w/m%d' % i)
`)
	shell := l.Shell(id, "")
	defer shell.Close()
	names, ask := 0, rpc.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: w})
	noError(t, lab.Until(20*time.Second, "the loss is told", func() error {
		res, err := shell.Client().Files.GetWatcherEvents(t.Context(), ask)
		if rpc.CodeOf(err) == rpc.CodeDataLoss {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		names += len(res.Msg.Events)
		return missing{"loss", nil}
	}), "events")
	if names == 0 || names >= 50000 {
		t.Errorf("%d of 50000 names were told before the loss", names)
	}
	sh(t, id, "true")
}

// TestAllOfASandboxCanBeWatched: every directory of the root file system, in a clone too;
// not /proc and the like, which have no end and tell nothing.
func TestAllOfASandboxCanBeWatched(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	begun := time.Now()
	w := watcher(t, id, "root", &filesystem.CreateWatcherRequest{Path: "/", Recursive: true})
	t.Logf("watched in %v", time.Since(begun))
	for what, id := range map[string]cube.SandboxID{"source": id, "clone": clone(t, id, 1)[0]} {
		sh(t, id, "touch /etc/ssl/certs/f /usr/share/"+what+" /dev/shm/f; mkdir -p /var/lib/new/deep; cat /proc/version; touch /var/lib/new/deep/f")
		got := seen(t, id, w, "create etc/ssl/certs/f", "create usr/share/"+what, "create dev/shm/f", "create var/lib/new/deep/f")
		if slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, " proc/") || strings.Contains(s, " sys/") }) {
			t.Errorf("got %q", got)
		}
	}
}
