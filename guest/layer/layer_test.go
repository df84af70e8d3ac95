package layer

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// entry is one of a tar, with its content.
type entry struct {
	tar.Header
	text string
}

// owner is another than ours, where that is possible.
func owner() int {
	if os.Getuid() == 0 {
		return 1000
	}
	return os.Getuid()
}

var when = time.Unix(1_600_000_000, 0)

func dir(name string, mode int64) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: owner(), Gid: os.Getgid(), ModTime: when}}
}

func file(name, text string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o640, Uid: owner(), Gid: os.Getgid(), ModTime: when, Size: int64(len(text))}, text}
}

func whiteout(name string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeChar, Name: name}}
}

func with(e entry, key, value string) entry {
	e.PAXRecords = map[string]string{xattrPrefix + key: value}
	return e
}

func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpacked is a root in which there were files before, and into which a tar was unpacked.
func unpacked(t *testing.T, before []string, entries ...entry) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range before {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("of the template"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	done, err := Unpack(root, bytes.NewReader(pack(t, entries...)))
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(bytes.NewReader(pack(t, entries...))); err != nil {
		t.Errorf("what can be unpacked is refused beforehand: %v", err)
	}
	if done.Entries != int64(len(entries)) {
		t.Errorf("%d entries were unpacked, want %d", done.Entries, len(entries))
	}
	return root
}

func stat(t *testing.T, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return st
}

func contents(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s: got %.60q, %v; want %.60q", path, got, err, want)
	}
}

func isAbsent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: got %v, want it to be absent", path, err)
	}
}

func TestFilesOfEveryKindAreBack(t *testing.T) {
	soft := entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "./d/soft", Linkname: "../nowhere", Uid: owner(), Gid: os.Getgid(), ModTime: when}}
	hard := entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: "./d/hard", Linkname: "./d/e/text"}}
	fifo := entry{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "./d/fifo", Mode: 0o622, Uid: owner(), Gid: os.Getgid(), ModTime: when}}
	suid := file("./d/suid", "x")
	suid.Mode = 0o4755
	acl := []byte{2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255}
	root := unpacked(t, nil,
		dir("./", 0o755), dir("./d/", 0o1711), dir("./d/e/", 0o500),
		with(file("./d/e/text", "some text"), "user.note", "kept\x00\xff"), hard, soft, fifo, suid,
		with(file("./d/acl", "x"), aclPrefix+"access", base64.RawStdEncoding.EncodeToString(acl)),
		file("./last", ""))
	contents(t, root+"/d/e/text", "some text")
	text := stat(t, root+"/d/e/text")
	if text.Ino != stat(t, root+"/d/hard").Ino || text.Nlink != 2 {
		t.Error("a hard link is another file")
	}
	if text.Mode&0o7777 != 0o640 || int(text.Uid) != owner() || text.Mtim.Sec != when.Unix() {
		t.Errorf("a file has mode %o, owner %d, time %d", text.Mode, text.Uid, text.Mtim.Sec)
	}
	value := make([]byte, 64)
	if n, err := unix.Lgetxattr(root+"/d/e/text", "user.note", value); err != nil || string(value[:n]) != "kept\x00\xff" {
		t.Errorf("its attribute is %q, %v", value[:max(n, 0)], err)
	}
	if n, err := unix.Lgetxattr(root+"/d/acl", aclPrefix+"access", value); err != nil || !bytes.Equal(value[:n], acl) {
		t.Errorf("an access control list is %x, %v; want %x", value[:max(n, 0)], err, acl)
	}
	if got, err := os.Readlink(root + "/d/soft"); err != nil || got != "../nowhere" {
		t.Errorf("a symbolic link leads to %q, %v", got, err)
	}
	if st := stat(t, root+"/d/fifo"); st.Mode != unix.S_IFIFO|0o622 || st.Mtim.Sec != when.Unix() {
		t.Errorf("a fifo has mode %o", st.Mode)
	}
	if st := stat(t, root+"/d/suid"); st.Mode&0o7777 != 0o4755 {
		t.Errorf("a setuid program has mode %o", st.Mode)
	}
	for name, want := range map[string]uint32{"/d": 0o1711, "/d/e": 0o500} {
		if st := stat(t, root+name); st.Mode&0o7777 != want || st.Mtim.Sec != when.Unix() || int(st.Uid) != owner() {
			t.Errorf("directory %s has mode %o, owner %d, time %d", name, st.Mode, st.Uid, st.Mtim.Sec)
		}
	}
}

func TestWhatIsZeroTakesNoSpace(t *testing.T) {
	const size = 64 << 20
	text := make([]byte, size)
	copy(text[32<<20:], "in the middle")
	root := unpacked(t, nil, dir("./", 0o755), file("./sparse", string(text)), file("./tail", "x"+string(make([]byte, 9000))))
	st := stat(t, root+"/sparse")
	if st.Size != size || st.Blocks*512 > 1<<20 {
		t.Errorf("got %d bytes in %d KiB, want %d bytes in a few", st.Size, st.Blocks/2, size)
	}
	contents(t, root+"/sparse", string(text))
	contents(t, root+"/tail", "x"+string(make([]byte, 9000)))
}

func TestWhatWasRemovedIsRemoved(t *testing.T) {
	shared := entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: "./usr/share/shared", Linkname: "./etc/gone"}}
	root := unpacked(t, []string{"etc/gone", "etc/kept", "usr/share/shared/a", "usr/share/doc/a/b", "usr/share/other"},
		dir("./", 0o755), dir("./etc/", 0o755), whiteout("./etc/never"), whiteout("./etc/gone"),
		dir("./usr/", 0o755), dir("./usr/share/", 0o755), shared, whiteout("./usr/share/doc"))
	isAbsent(t, root+"/usr/share/shared")
	isAbsent(t, root+"/etc/gone")
	isAbsent(t, root+"/usr/share/doc")
	contents(t, root+"/etc/kept", "of the template")
	contents(t, root+"/usr/share/other", "of the template")
}

func TestADirectoryThatWasMadeAnewIsEmptyBefore(t *testing.T) {
	var before []string
	for i := range 3000 { // more than are listed at once
		before = append(before, fmt.Sprintf("d/%d", i))
	}
	root := unpacked(t, append(before, "d/sub/x", "e/x"),
		dir("./", 0o755), with(dir("./d/", 0o755), opaque, "y"), file("./d/new", "new"), dir("./e/", 0o700))
	names, err := os.ReadDir(root + "/d")
	if err != nil || len(names) != 1 || names[0].Name() != "new" {
		t.Errorf("got %d entries, %v; want the new one alone", len(names), err)
	}
	contents(t, root+"/e/x", "of the template")
}

func TestWhatHasAnotherKindNowIsReplaced(t *testing.T) {
	link := entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "./was-dir", Linkname: "d"}}
	hard := entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: "./was-file-2", Linkname: "./was-file-3"}}
	root := unpacked(t, []string{"was-file/x", "was-file-1", "was-file-2", "was-file-3", "was-dir/a/b"},
		dir("./", 0o755), file("./was-file", "now a file"), dir("./was-file-1/", 0o755), file("./was-file-1/x", "below"),
		file("./was-file-3", "new"), hard, link)
	contents(t, root+"/was-file", "now a file")
	contents(t, root+"/was-file-1/x", "below")
	contents(t, root+"/was-file-2", "new")
	if got, err := os.Readlink(root + "/was-dir"); err != nil || got != "d" {
		t.Errorf("a directory that became a link: %q, %v", got, err)
	}
}

func TestDirectoriesMayBeDeep(t *testing.T) {
	entries := []entry{dir("./", 0o755)}
	path := "./"
	for range 600 {
		path += "directory/"
		entries = append(entries, dir(path, 0o750))
	}
	root := unpacked(t, nil, append(entries, file(path+"file", "deep"), file("./top", "top"))...)
	contents(t, root+"/top", "top")
	at, err := unix.Open(root, unix.O_DIRECTORY, 0)
	for range 600 {
		if err != nil {
			t.Fatal(err)
		}
		next, nerr := openDirectory(at, "directory")
		unix.Close(at)
		at, err = next, nerr
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstatat(at, "file", &st, 0); err != nil || st.Size != 4 {
		t.Errorf("the deepest file: %v, %d bytes", err, st.Size)
	}
}

// outside is a root beside which there is something that must stay as it is.
func outside(t *testing.T) (root, secret string) {
	t.Helper()
	top := t.TempDir()
	root, secret = top+"/root", top+"/secret"
	if err := errors.Join(os.Mkdir(root, 0o755), os.Mkdir(secret, 0o755), os.WriteFile(secret+"/file", []byte("secret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return root, secret
}

func TestNothingLeadsOutOfTheRoot(t *testing.T) {
	link := entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "./link", Linkname: "../secret"}}
	hard := entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: "./hard", Linkname: "./link/file"}}
	up := entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: "./hard", Linkname: "./../secret/file"}}
	for name, entries := range map[string][]entry{
		"up":                     {file("./../secret/file", "x")},
		"absolute":               {file("/etc/x", "x")},
		"bare":                   {file("etc/x", "x")},
		"within":                 {dir("./a/", 0o755), file("./a/../../secret/file", "x")},
		"through a link":         {link, file("./link/file", "x")},
		"whiteout by a link":     {link, whiteout("./link/file")},
		"hard link by a link":    {link, hard},
		"hard link up":           {up},
		"file at a link's place": {link, file("./link", "x")},
		"opaque link":            {link, with(dir("./link/", 0o755), opaque, "y")},
		"the root a file":        {file("./.", "x")},
	} {
		root, secret := outside(t)
		_, err := Unpack(root, bytes.NewReader(pack(t, entries...)))
		contents(t, secret+"/file", "secret")
		if n := stat(t, secret+"/file").Nlink; n != 1 {
			t.Errorf("%s: the secret has %d names", name, n)
		}
		if replaced := strings.HasPrefix(name, "file at") || name == "opaque link"; (err == nil) != replaced {
			t.Errorf("%s: got %v", name, err)
		}
		if refused := Check(bytes.NewReader(pack(t, entries...))); (refused == nil) != (err == nil) {
			t.Errorf("%s: beforehand %v, in place %v", name, refused, err)
		}
	}
}

func TestAnErrorNamesThePath(t *testing.T) {
	root := t.TempDir()
	long := strings.Repeat("n", 300)
	_, err := Unpack(root, bytes.NewReader(pack(t, file("./"+long, "x"))))
	if !errors.Is(err, unix.ENAMETOOLONG) || !strings.Contains(err.Error(), "./nnn") || len(err.Error()) > 2*maxShown {
		t.Errorf("got %v", err)
	}
	whole := pack(t, file("./a", strings.Repeat("x", 100_000)))
	_, err = Unpack(root, bytes.NewReader(whole[:50_000]))
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "./a") {
		t.Errorf("half a tar: got %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(pack(f, dir("./", 0o755), dir("./a/", 0o700), file("./a/b", "text"), whiteout("./c")))
	f.Add(pack(f, entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "./a", Linkname: "../secret"}}, file("./a/file", "x")))
	f.Add(pack(f, with(dir("./a/", 0o755), opaque, "y"), file("./../secret/file", "x")))
	f.Fuzz(func(t *testing.T, b []byte) {
		root, secret := outside(t)
		_, err := Unpack(root, bytes.NewReader(b))
		contents(t, secret+"/file", "secret")
		if refused := Check(bytes.NewReader(b)); err == nil && refused != nil && !strings.Contains(refused.Error(), "not there") {
			t.Errorf("what can be unpacked is refused beforehand: %v", refused)
		}
	})
}
