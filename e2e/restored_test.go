package e2e

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	cube "cubesandbox"
)

// withHook makes a sandbox with a hook that notes each life, and a snapshot of it.
func withHook(t *testing.T) (cube.SandboxID, cube.ImageID) {
	t.Helper()
	s, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Base})
	noError(t, err, "create")
	sh(t, s.ID, `mkdir -p /etc/cube/after-restore.d && cd /etc/cube/after-restore.d
cat >10-note <<'X'
#!/bin/sh
echo "$CUBE_SANDBOX_ID $CUBE_GENERATION $(cat /run/cube/id) $(id -u)" >>/root/lives
echo "in life $CUBE_GENERATION"
X
chmod 755 10-note; : >/root/lives; sync`)
	return s.ID, save(t, s.ID)
}

// TestEveryLifeThatCameFromAnImageRunsItsHooks: once in each, before anything else can be
// done in it, with its own identity, whatever verb it began with.
func TestEveryLifeThatCameFromAnImageRunsItsHooks(t *testing.T) {
	l.Guard(t)
	ctx := t.Context()
	events := l.Engine.Events(ctx)
	source, im := withHook(t)
	// want is what the first command in a life finds: the one line of this life, for in the
	// image there is none.
	want := func(verb string, id cube.SandboxID, gen cube.Generation) {
		t.Helper()
		if got, want := sh(t, id, "cat /root/lives"), fmt.Sprintf("%s %d %s 0", id, gen, id); got != want {
			t.Errorf("%s: the hook has noted %q, want %q", verb, got, want)
		}
		if ev := event(t, events, cube.EventHook, id); ev.Generation != gen || !strings.Contains(ev.Detail, "10-note: done after ") || !strings.HasSuffix(ev.Detail, fmt.Sprintf(`it said "in life %d\n"`, gen)) {
			t.Errorf("%s: event %+v", verb, ev)
		}
	}
	if got := sh(t, source, "cat /root/lives"); got != "" {
		t.Errorf("in the source, which came from no snapshot with a hook, it has noted %q", got)
	}
	made, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: im})
	noError(t, err, "create")
	want("create", made.ID, 1)
	want("clone", clone(t, source, 1)[0], 1)
	back, err := l.Engine.Rollback(ctx, source, im)
	noError(t, err, "rollback")
	want("rollback", source, back.Generation)

	sh(t, source, ": >/root/lives")
	paused, err := l.Engine.Pause(ctx, source, cube.NewSnapshotID(), cube.Pausing{})
	noError(t, err, "pause")
	cold, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: paused.ID, Files: true})
	noError(t, err, "create from files")
	want("from files", cold.ID, 1)
	_, err = l.Engine.Resume(ctx, cube.CreateSpec{ID: source, Image: paused.ID, Generation: back.Generation + 1})
	noError(t, err, "resume")
	want("resume", source, back.Generation+1)

	// A member of a pool is restored before anybody owns it, and then told once.
	noError(t, l.Engine.SetPools(ctx, cube.Pools{Restored: map[cube.ImageID]int{im: 1}}), "set pools")
	defer func() { noError(t, l.Engine.SetPools(context.Background(), cube.Pools{}), "empty the pools") }()
	noError(t, l.Engine.PoolsReady(ctx), "fill the pools")
	claimed, err := l.Engine.Create(ctx, cube.CreateSpec{ID: cube.NewSandboxID(), Image: im})
	noError(t, err, "create from the pool")
	want("pool", claimed.ID, 1)
}

// TestAHookThatFailsOrHangsHarmsNoRestore: it is told, ended with all that it has started,
// and the others run, even where it has stopped the init that starts them.
func TestAHookThatFailsOrHangsHarmsNoRestore(t *testing.T) {
	l.Guard(t)
	events := l.Engine.Events(t.Context())
	source, _ := withHook(t)
	sh(t, source, `cd /etc/cube/after-restore.d
printf '#!/bin/sh\nprintf "\\033[2Jno"; exit 3\n' >00-fails
printf '#!/bin/sh\nsleep 1001 & kill -STOP 1; sleep 1001\n' >01-hangs
printf 'no program\n' >02-not
chmod 755 *; printf '#!/bin/sh\ntouch /root/unsafe\n' >03-open; chmod 757 03-open`)
	id := clone(t, source, 1)[0]
	if got := sh(t, id, "cat /root/lives; ls /root/unsafe; pgrep -c sleep; true"); !strings.HasPrefix(got, string(id)) || !strings.HasSuffix(got, "\n0") || strings.Contains(got, "unsafe\n") {
		t.Errorf("inside: %q", got)
	}
	wants := []string{
		`"03-open": others than root may write to it`, `00-fails: exit status 3 after `, `it said "\x1b[2Jno"`,
		`01-hangs: killed: a hook may take 5s`, `02-not: error starting process`,
	}
	var got string
	for slices.ContainsFunc(wants, func(w string) bool { return !strings.Contains(got, w) }) {
		got += event(t, events, cube.EventHookFailed, id).Detail + "\n"
	}
}

// watch is a program that subscribes by signal and by inotify, and notes what it hears.
// Its arguments are a file to note it in and the signal to ask for.
const watch = `import ctypes, os, signal, struct, sys
note, sig = sys.argv[1], sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
def said(what):
    with open(note, 'a') as f: f.write(what + ' ' + open('/run/cube/id').readline() )
for s in (signal.SIGUSR1, signal.SIGHUP):
    signal.signal(s, lambda n, _: said(signal.Signals(n).name))
fd = libc.inotify_init1(0)
libc.inotify_add_watch(fd, b'/run/cube/generation', 8)  # IN_CLOSE_WRITE
with open('/run/cube/subscribers/%d' % os.getpid(), 'w') as f: f.write(sig)
open(note, 'w').close()
while True:
    mask = struct.unpack_from('iI', os.read(fd, 4096))[1]
    said('generation %d' % mask)
`

// TestSubscribersHearOfEachRestore: by signal and by inotify, as root and as another user,
// also where the number of the generation stays what it was. They hear nothing in a
// source that runs on.
func TestSubscribersHearOfEachRestore(t *testing.T) {
	l.Guard(t)
	s, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Base})
	noError(t, err, "create")
	sh(t, s.ID, "cat >/tmp/watch.py <<'X'\n"+watch+`X
nohup python3 /tmp/watch.py /tmp/root USR1 >/tmp/log 2>&1 &
nohup sudo -u user python3 /tmp/watch.py /tmp/user '' >/tmp/log2 2>&1 &
nohup cat /proc/gvisor/checkpoint >/tmp/checkpoint 2>/dev/null &
until [ -e /tmp/root ] && [ -e /tmp/user ]; do sleep 0.02; done`)
	first := clone(t, s.ID, 1)[0]
	heard(t, first, "/tmp/root", "SIGUSR1", first)
	heard(t, first, "/tmp/user", "SIGUSR1", first)
	for id, want := range map[cube.SandboxID]string{s.ID: "resume", first: "restore"} {
		if got := sh(t, id, "cat /tmp/checkpoint"); got != want {
			t.Errorf("gVisor's own file says %q in %s, want %q", got, id, want)
		}
	}
	sh(t, first, ": >/tmp/root; : >/tmp/user")
	second := clone(t, first, 1)[0]
	heard(t, second, "/tmp/root", "SIGUSR1", second)
	heard(t, second, "/tmp/user", "SIGUSR1", second)
	for _, id := range []cube.SandboxID{s.ID, first} {
		if got := sh(t, id, "cat /tmp/root /tmp/user"); got != "" {
			t.Errorf("in the source %s they have heard %q", id, got)
		}
	}
}

// heard waits until a program has noted a signal and a change, once each, and both with
// the identity of its own life: nobody is woken before that.
func heard(t *testing.T, id cube.SandboxID, note, signal string, who cube.SandboxID) {
	t.Helper()
	want := []string{fmt.Sprintf("%s %s", signal, who), fmt.Sprintf("generation 8 %s", who)}
	var got []string
	again(t, "it has noted both", func(context.Context) error {
		got = strings.Split(sh(t, id, "cat "+note), "\n")
		if len(got) < len(want) {
			return fmt.Errorf("it has noted %q", got)
		}
		return nil
	})
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: it has noted %q, want %q", note, got, want)
	}
}

// TestASubscriptionGivesNobodyMoreRights: a user's file makes no signal to root's process,
// and a file for one that has ended goes away.
func TestASubscriptionGivesNobodyMoreRights(t *testing.T) {
	l.Guard(t)
	events := l.Engine.Events(t.Context())
	s, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Base})
	noError(t, err, "create")
	pid := sh(t, s.ID, `nohup sleep 1000 >/dev/null 2>&1 &
sudo -u user sh -c "echo TERM >/run/cube/subscribers/$!; echo TERM >/run/cube/subscribers/1; touch /run/cube/subscribers/30000"
ln -s /etc/passwd /run/cube/subscribers/30001
echo $!`)
	id := clone(t, s.ID, 1)[0]
	if got := sh(t, id, "kill -0 "+pid+" && echo alive; ls /run/cube/subscribers | sort -n | tr '\\n' ' '"); got != "alive\n1 "+pid+" 30001" {
		t.Errorf("inside: %q", got)
	}
	detail := event(t, events, cube.EventHookFailed, id).Detail
	for _, want := range []string{fmt.Sprintf(`"%s": its owner, user 1000, may not send process %s a signal`, pid, pid), `"1": its name is not`, `"30001": `} {
		if !strings.Contains(detail, want) {
			t.Errorf("event %q, want %q", detail, want)
		}
	}
}

// TestUsersCannotWriteTheirIdentity: not even root among them.
func TestUsersCannotWriteTheirIdentity(t *testing.T) {
	l.Guard(t)
	s, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Base})
	noError(t, err, "create")
	got := sh(t, s.ID, `echo mine >/tmp/x
for f in /run/cube/id /run/cube/generation /run/cube/machine-id /run/cube/boot_id /proc/sys/kernel/random/boot_id; do
  before=$(cat $f)
  for try in "cp /tmp/x $f" "rm -f $f" "mv /tmp/x $f" "mount --bind /tmp/x $f" "umount $f" "umount -l $f"; do
    $try >/dev/null 2>&1
    [ "$(cat $f)" = "$before" ] && [ -n "$before" ] || echo "$f is $(cat $f) after $try"
  done
done
[ "$(cat /run/cube/boot_id)" = "$(cat /proc/sys/kernel/random/boot_id)" ] || echo "two boot ids"
{ touch /run/cube/new || rm -rf /run/cube/subscribers; } 2>/dev/null && echo "a file was made"
true`)
	if got != "" {
		t.Error(got)
	}
}

// TestASlowHookHoldsNoTurnToRestore: restores wait for each other, for as many as there are
// processors are at work at a time; but nobody waits for hooks of others. One more than
// that are made at once, and at one moment all of their hooks are at work.
func TestASlowHookHoldsNoTurnToRestore(t *testing.T) {
	l.Guard(t)
	source, _ := withHook(t)
	sh(t, source, `cat >/etc/cube/after-restore.d/20-slow <<'X'
#!/bin/sh
date +%s%N >/root/span; sleep 3; date +%s%N >>/root/span
X
chmod 755 /etc/cube/after-restore.d/20-slow`)
	im := save(t, source)
	var made sync.WaitGroup
	var ids []cube.SandboxID
	for range runtime.NumCPU() + 1 {
		id := cube.NewSandboxID()
		ids = append(ids, id)
		made.Go(func() {
			if _, err := l.Engine.Create(t.Context(), cube.CreateSpec{ID: id, Image: im}); err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}
	made.Wait()
	var last, first int64 = 0, math.MaxInt64
	for _, id := range ids {
		var begun, ended int64
		_, err := fmt.Sscan(sh(t, id, "cat /root/span"), &begun, &ended)
		noError(t, err, "the hook's times")
		last, first = max(last, begun), min(first, ended)
	}
	if last > first {
		t.Errorf("the last hook began %d ms after the first had ended", (last-first)/1e6)
	}
}
