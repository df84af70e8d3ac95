package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/internal/timing"
)

// makeFiles makes files of every kind, all over a sandbox.
const makeFiles = `import os, shutil
os.umask(0o022)
os.makedirs('/root/t/deep')
at = os.open('/root/t/deep', os.O_DIRECTORY)
for _ in range(300):
    os.mkdir('directory', 0o750, dir_fd=at)
    below = os.open('directory', os.O_DIRECTORY, dir_fd=at)
    os.close(at)
    at = below
fd = os.open('deepest', os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=at)
os.write(fd, b'deep'); os.close(fd); os.close(at)
open('/root/t/text', 'w').write('some text\n')
os.link('/root/t/text', '/root/t/hard')
os.symlink('../nowhere', '/root/t/soft')
os.link('/root/t/soft', '/root/t/hardsoft', follow_symlinks=False)
os.mkfifo('/root/t/fifo', 0o622)
os.mknod('/root/t/null', 0o20666, os.makedev(1, 3))
os.setxattr('/root/t/text', 'user.note', b'kept\x00 as it is')
os.setxattr('/root/t', 'user.of', 'a directory \u00e4'.encode())
open('/root/t/suid', 'w').close(); os.chmod('/root/t/suid', 0o4711)
open('/root/t/empty', 'w').close()
open('/root/t/ \u00e4\n\\ name', 'w').write('x')
fd = os.open(b'/root/t/\xff\xfe', os.O_CREAT | os.O_WRONLY); os.close(fd)
open('/root/t/' + 'n' * 255, 'w').write('x')
open('/root/t/old', 'w').write('x'); os.utime('/root/t/old', (0, 86400))
with open('/root/t/sparse', 'wb') as f:
    f.truncate(256 << 20)
    f.seek(100 << 20)
    f.write(os.urandom(1 << 20))
os.mkdir('/root/t/sticky', 0o700); os.chmod('/root/t/sticky', 0o3777)
os.mkdir('/home/user/mine')
for i in range(10000):
    if i % 100 == 0:
        os.mkdir('/home/user/mine/%d' % i)
    p = '/home/user/mine/%d/%d' % (i // 100 * 100, i)
    open(p, 'w').write('file %d' % i)
    os.chown(p, 1000, 1000)
os.chown('/home/user/mine', 1000, 1000)
os.remove('/etc/skel/.profile')
shutil.rmtree('/usr/share/git-core')
shutil.rmtree('/etc/ssl'); os.mkdir('/etc/ssl', 0o711); open('/etc/ssl/mine', 'w').write('made anew')
os.remove('/usr/bin/curl'); os.mkdir('/usr/bin/curl'); open('/usr/bin/curl/x', 'w').close()
shutil.rmtree('/var/lib/dpkg'); open('/var/lib/dpkg', 'w').write('was a directory')
os.rename('/etc/debian_version', '/etc/moved')
open('/etc/profile', 'a').write('# one line more\n')
os.chmod('/etc/passwd', 0o640); os.chown('/opt', 1000, 1000)
open('/boot/mine', 'w').write('below what is mounted')
open('/tmp/mine', 'w').write('in /tmp')
os.sync()
`

// listFiles prints everything that can be told of each file on the root file system.
// Times are to the second: so a tar keeps them.
const listFiles = `import hashlib, os, stat, sys
device = os.lstat('/').st_dev
def show(path):
    s = os.lstat(path)
    # What the agent changes in each life is no file of the user's.
    if path in (b'/', b'/run', b'/tmp', b'/dev', b'/proc', b'/sys'):
        return s
    out = [path, oct(s.st_mode), s.st_uid, s.st_gid, (s.st_mtime_ns + 500000000) // 1000000000]
    out.append(sorted((k, os.getxattr(path, k, follow_symlinks=False)) for k in os.listxattr(path, follow_symlinks=False)))
    if not stat.S_ISDIR(s.st_mode):
        out += [s.st_nlink, s.st_size, s.st_rdev]
    if stat.S_ISLNK(s.st_mode):
        out.append(os.readlink(path))
    if stat.S_ISREG(s.st_mode) and not path.startswith(b'/usr/'):
        out.append(hashlib.md5(open(path, 'rb').read()).hexdigest())
    print(*out)
    return s
def walk(at, path):
    for name in sorted(os.listdir(at)):
        p = os.path.join(path, name)
        if p in (b'/dev', b'/proc', b'/sys', b'/run/cube'):
            continue
        if len(p) > 3000:
            print(p[-20:])
        s = show(p)
        if stat.S_ISDIR(s.st_mode):
            walk(p, p)
sys.setrecursionlimit(10000)
walk(b'/', b'/')
print('allocated', os.lstat('/root/t/sparse').st_blocks // 2048, 'MiB')
`

// python runs a program of several lines as root.
func python(t *testing.T, id cube.SandboxID, program string) string {
	t.Helper()
	noError(t, l.WriteFile(t.Context(), id, "/dev/shm/program.py", []byte(program)), "write a program")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := l.Run(ctx, id, "/usr/bin/python3", "/dev/shm/program.py")
	if err != nil || out.Exit != 0 {
		t.Fatalf("python: %v, exit status %d: %.1000s", err, out.Exit, out.Stderr)
	}
	return string(out.Stdout)
}

// sameFiles compares two lists of files.
func sameFiles(t *testing.T, got, want string) {
	t.Helper()
	lines := map[string]int{}
	for line := range strings.Lines(got) {
		lines[line]++
	}
	for line := range strings.Lines(want) {
		lines[line]--
	}
	shown := 0
	for line, n := range lines {
		if n != 0 && shown < 20 {
			shown++
			t.Errorf("%+d: %.300s", n, line)
		}
	}
	if n := strings.Count(want, "\n"); n < 10_000 {
		t.Errorf("only %d files were compared", n)
	}
}

// pause pauses a sandbox and returns its image.
func pause(t *testing.T, id cube.SandboxID, p cube.Pausing) cube.Image {
	t.Helper()
	ctx, times := timing.With(t.Context())
	begun := time.Now()
	img, err := l.Engine.Pause(ctx, id, cube.NewSnapshotID(), p)
	noError(t, err, "pause")
	t.Logf("pause: %d MiB of pages, %d KiB of files: %s", img.PagesBytes>>20, img.FilesBytes>>10, times.Header(time.Since(begun)))
	return img
}

func resume(t *testing.T, id cube.SandboxID, gen cube.Generation, img cube.ImageID, files bool) cube.Sandbox {
	t.Helper()
	ctx, times := timing.With(t.Context())
	begun := time.Now()
	who := cube.Identity{Hostname: "again", Env: map[string]string{"WHO": "still me"}}
	s, err := l.Engine.Resume(ctx, cube.CreateSpec{ID: id, Generation: gen, Identity: who, Image: img, Files: files})
	noError(t, err, "resume")
	t.Logf("resume, files %v: %s", files, times.Header(time.Since(begun)))
	return s
}

// uptime is how long a sandbox's kernel has run, in seconds.
func uptime(t *testing.T, id cube.SandboxID) float64 {
	t.Helper()
	up, err := strconv.ParseFloat(sh(t, id, "cut -d' ' -f1 /proc/uptime"), 64)
	noError(t, err, "uptime")
	return up
}

func TestFilesOfEveryKindComeBackByAColdBoot(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	python(t, id, makeFiles)
	want := python(t, id, listFiles)
	img := pause(t, id, cube.Pausing{})
	if img.FilesBytes == 0 || img.FilesOnly || img.PagesBytes == 0 {
		t.Fatalf("got %+v, want memory, and files apart from it", img)
	}
	events := l.Engine.Events(t.Context())
	s := resume(t, id, 2, img.ID, true)
	if ev := event(t, events, cube.EventFilesOnly, id); ev.Generation != 2 {
		t.Errorf("got %+v", ev)
	}
	sameFiles(t, python(t, id, listFiles), want)
	if s.Generation != 2 || s.Limits != img.Limits {
		t.Errorf("got %+v", s)
	}
	if up := uptime(t, id); up > 60 {
		t.Errorf("its kernel is up for %.0f s: that is no cold boot", up)
	}
	if got := sh(t, id, "pgrep python3 || echo none; echo $WHO; hostname"); got != "none\nstill me\nagain" {
		t.Errorf("got %q", got)
	}
	if got := sh(t, id, "grep -c cube /proc/mounts; ls /run/cube; ls /boot"); got != "2\nboot_id\ngeneration\nid\nmachine-id\nsubscribers\nmine" {
		t.Errorf("of the agent users see %q", got)
	}
	worksInEveryWay(t, id, want)
}

// worksInEveryWay takes a sandbox that was booted from files through all verbs.
func worksInEveryWay(t *testing.T, id cube.SandboxID, want string) {
	t.Helper()
	sh(t, id, "echo $$ >/root/t/text; sleep 1000 >/dev/null 2>&1 & echo $! >/dev/shm/sleeper")
	snapshot := save(t, id)
	copied := clone(t, id, 1)[0]
	sh(t, copied, "kill -0 $(cat /dev/shm/sleeper)")
	noError(t, l.Engine.Kill(t.Context(), copied), "kill the clone")
	sh(t, id, "rm -r /root/t")
	if _, err := l.Engine.Rollback(t.Context(), id, snapshot); err != nil {
		t.Fatalf("rollback: %v", err)
	}
	img := pause(t, id, cube.Pausing{})
	resume(t, id, 9, img.ID, false)
	sh(t, id, "kill -0 $(cat /dev/shm/sleeper)")
	sh(t, id, "printf 'some text\\n' >/root/t/text; touch -d @$(stat -c %Y /root/t/hardsoft) /root/t/text")
	_ = want
}

func TestWhereMemoryIsCorruptFilesStillComeBack(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	sh(t, id, "echo precious >/root/precious; mkfifo /root/p")
	img := pause(t, id, cube.Pausing{})
	l.Alter(t, img.ID)
	_, err := l.Engine.Resume(t.Context(), cube.CreateSpec{ID: id, Generation: 2, Image: img.ID})
	if !errors.Is(err, cube.ErrCorrupt) || !strings.Contains(err.Error(), "pages") {
		t.Errorf("with its memory: got %v, want that pages is corrupt", err)
	}
	resume(t, id, 2, img.ID, true)
	if got := sh(t, id, "cat /root/precious; test -p /root/p && echo pipe"); got != "precious\npipe" {
		t.Errorf("got %q", got)
	}
	// The image is as it was: it can be done again.
	noError(t, l.Engine.Kill(t.Context(), id), "kill")
	resume(t, id, 3, img.ID, true)
	noError(t, l.Engine.Kill(t.Context(), id), "kill")
	damaged := filepath.Join(l.Images.Dir(img.ID), "disk.tar")
	noError(t, os.Truncate(damaged, 1024), "truncate")
	_, err = l.Engine.Resume(t.Context(), cube.CreateSpec{ID: id, Generation: 4, Image: img.ID, Files: true})
	if !errors.Is(err, cube.ErrCorrupt) || !strings.Contains(err.Error(), "disk.tar") {
		t.Errorf("with its files: got %v, want that disk.tar is corrupt", err)
	}
}

func TestFilesNeedNeitherTheEngineNorTheProcessorOfTheirMemory(t *testing.T) {
	for what, forge := range map[string][2]string{
		"engine":    {`("engine": *")[^"]*"`, `${1}another-engine"`},
		"processor": {`"cpu": *\[`, `"cpu": ["no-a",`},
		"agent":     {`("agent": *")[^"]*"`, `${1}` + strings.Repeat("0", 64) + `"`},
	} {
		t.Run(what+" gone", func(t *testing.T) {
			l.Guard(t)
			id := witness(t)
			sh(t, id, "echo precious >/root/precious")
			img := pause(t, id, cube.Pausing{})
			l.Forge(t, img.ID, forge[0], forge[1])
			_, err := l.Engine.Resume(t.Context(), cube.CreateSpec{ID: id, Generation: 2, Image: img.ID})
			if !errors.Is(err, cube.ErrIncompatible) || !strings.Contains(err.Error(), what) {
				t.Errorf("with its memory: got %v, want that the %s is not there", err, what)
			}
			noSandbox(t, id)
			resume(t, id, 2, img.ID, true)
			if got := sh(t, id, "cat /root/precious"); got != "precious" {
				t.Errorf("got %q", got)
			}
			save(t, id)
		})
	}
}

func TestAnImageWithoutMemoryIsSmallAndBootsCold(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	sh(t, id, "echo kept >/root/kept")
	img := pause(t, id, cube.Pausing{FilesOnly: true})
	if !img.FilesOnly || img.PagesBytes != 0 || img.Bytes > 1<<20 {
		t.Errorf("got %+v, want files only", img)
	}
	entries, err := os.ReadDir(l.Images.Dir(img.ID))
	noError(t, err, "list")
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "pages") || e.Name() == "kernel" {
			t.Errorf("%s is there", e.Name())
		}
	}
	_, err = l.Engine.Resume(t.Context(), cube.CreateSpec{ID: id, Generation: 2, Image: img.ID})
	if !errors.Is(err, cube.ErrIncompatible) {
		t.Errorf("with a memory that it does not have: got %v", err)
	}
	resume(t, id, 2, img.ID, true)
	if got := sh(t, id, "cat /root/kept"); got != "kept" {
		t.Errorf("got %q", got)
	}
	_, err = l.Engine.Create(t.Context(), cube.CreateSpec{ID: cube.NewSandboxID(), Image: l.Base, Files: true})
	if !errors.Is(err, cube.ErrNotFound) {
		t.Errorf("from files that an image does not have: got %v", err)
	}
}

func TestAFileLargerThanItsMemoryDoesNotCostASandboxAtAPause(t *testing.T) {
	l.Guard(t)
	for _, only := range []bool{false, true} {
		id := small(t, func(l *cube.Limits) { l.MemoryMiB, l.Pids = 128, 64 })
		sh(t, id, "truncate -s 3G /root/huge; echo precious >/root/precious; sleep 1000 >/dev/null 2>&1 & echo $! >/dev/shm/sleeper")
		events := l.Engine.Events(t.Context())
		img := pause(t, id, cube.Pausing{FilesOnly: only})
		if img.FilesOnly || img.FilesBytes != 0 || img.PagesBytes == 0 {
			t.Errorf("files only %v: got %+v, want its memory", only, img)
		}
		resume(t, id, 2, img.ID, false)
		if got := sh(t, id, "kill -0 $(cat /dev/shm/sleeper); cat /root/precious; stat -c %s /root/huge"); got != fmt.Sprintf("precious\n%d", 3<<30) {
			t.Errorf("got %q", got)
		}
		select {
		case ev := <-events:
			t.Errorf("got event %+v of a sandbox that is well", ev)
		default:
		}
	}
}

func TestAPauseWithAHundredMegabytesOfFiles(t *testing.T) {
	l.Guard(t)
	id := witness(t)
	sh(t, id, "dd if=/dev/urandom of=/root/f bs=1M count=100 status=none; md5sum /root/f >/root/sum")
	img := pause(t, id, cube.Pausing{})
	if img.FilesBytes < 100<<20 {
		t.Errorf("got %+v, want 100 MiB of files", img)
	}
	resume(t, id, 2, img.ID, true)
	sh(t, id, "md5sum -c /root/sum")
}
