package agent

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strconv"

	"cubesandbox/guest/agentapi"
	"cubesandbox/guest/spawn"

	"golang.org/x/sys/unix"
)

// Files of the small file system that tells programs who they are in. Users cannot
// write there, but for subscribersDir.
const (
	infoID         = "id"
	infoGeneration = "generation"
	infoMachineID  = "machine-id"
	infoBootID     = "boot_id"
	subscribersDir = spawn.InfoDir + "/subscribers"
)

// identity holds the files that say who a sandbox is, open: each sandbox writes them
// at its beginning, and every system call of that counts.
type identity struct {
	files map[string]*os.File // by name, infoGeneration excepted
	dir   *os.File            // users' root may rename what leads to it
}

// openIdentity mounts that file system. It is done before init is started, which then
// has both mounts, and finds a boot id to put in the place of the kernel's.
func openIdentity() (identity, error) {
	const strict = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct{ dir, options string }{
		{spawn.InfoDir, "mode=0755,size=64k"},
		{subscribersDir, "mode=1777,size=256k"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return identity{}, fmt.Errorf("make %s: %w", m.dir, err)
		}
		if err := unix.Mount("cube", m.dir, "tmpfs", strict, m.options); err != nil {
			return identity{}, fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	dir, err := os.Open(spawn.InfoDir)
	if err != nil {
		return identity{}, err
	}
	if err := dir.Chdir(); err != nil { // for spawn.Launch
		return identity{}, err
	}
	i := identity{files: map[string]*os.File{}, dir: dir}
	for _, name := range []string{infoID, infoMachineID, infoBootID} {
		f, err := os.OpenFile(spawn.InfoDir+"/"+name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return i, fmt.Errorf("make %s: %w", name, err)
		}
		i.files[name] = f
	}
	return i, i.write(infoBootID, newBootID())
}

// take says who the sandbox is. The generation is not among it: it is written when all
// else is done.
func (i identity) take(c *agentapi.Configure) error {
	return errors.Join(i.write(infoID, c.SandboxID), i.write(infoMachineID, machineID(c.SandboxID)), i.write(infoBootID, newBootID()))
}

// write writes a file in place, for one of them has a mount upon it. What these files
// say is always of the same length, so readers find the old line or the new one.
func (i identity) write(name, line string) error {
	f := i.files[name]
	if f == nil {
		return fmt.Errorf("write %s: %w", name, os.ErrNotExist)
	}
	if _, err := f.WriteAt([]byte(line+"\n"), 0); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// writeGeneration writes the file of that name such that who watches it sees it closed after
// writing, also when it says the same as before. It never says nothing: what the old
// number was longer by goes after the new one is there.
func (i identity) writeGeneration(n uint64) error {
	fd, err := unix.Openat(int(i.dir.Fd()), infoGeneration, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", infoGeneration, err)
	}
	defer unix.Close(fd)
	line := strconv.AppendUint(nil, n, 10)
	line = append(line, '\n')
	_, err = unix.Write(fd, line)
	if err == nil {
		err = unix.Ftruncate(fd, int64(len(line)))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", infoGeneration, err)
	}
	return nil
}

// machineID is what /etc/machine-id says, as machine-id(5) has it: 32 hex digits,
// in the form of a random UUID. It follows from the sandbox's id alone, so that it
// stays through pause, resume and rollback, and says nothing about it.
func machineID(sandbox string) string {
	sum := sha256.Sum256([]byte("cube machine-id\n" + sandbox))
	return fmt.Sprintf("%x", uuid([16]byte(sum[:])))
}

// newBootID is one of its own for each life, in the kernel's form.
func newBootID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	b = uuid(b)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// uuid marks bytes as a random UUID (RFC 9562, version 4).
func uuid(b [16]byte) [16]byte {
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return b
}
