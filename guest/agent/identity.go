package agent

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"

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

// setupInfo mounts that file system. It is done before init is started, which then
// has both mounts, and finds a boot id to put in the place of the kernel's.
func setupInfo() error {
	const strict = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct{ dir, options string }{
		{spawn.InfoDir, "mode=0755,size=64k"},
		{subscribersDir, "mode=1777,size=256k"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", m.dir, err)
		}
		if err := unix.Mount("cube", m.dir, "tmpfs", strict, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	return writeInfo(infoBootID, newBootID())
}

// writeIdentity says who the sandbox is. The generation is not among it: it is
// written when all else is done.
func writeIdentity(c *agentapi.Configure) error {
	for name, text := range map[string]string{
		infoID: c.SandboxID, infoMachineID: machineID(c.SandboxID), infoBootID: newBootID(),
	} {
		if err := writeInfo(name, text); err != nil {
			return err
		}
	}
	return nil
}

// writeInfo writes a file in place: a link or bind mount of it stays one, and who
// watches it sees it closed after writing, also when it says the same as before.
// Readers find the old line or the new one, never none.
func writeInfo(name, line string) error {
	f, err := os.OpenFile(spawn.InfoDir+"/"+name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.Truncate(int64(len(line) + 1)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
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
