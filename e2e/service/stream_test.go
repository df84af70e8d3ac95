package service

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// numbered is a stream of so many blocks of blockSize bytes, each of which begins with
// its number. at is told of each.
type numbered struct {
	blocks, next uint64
	at           func(block uint64)
	left         []byte
	block        [blockSize]byte
}

const blockSize = 64 << 10

func (n *numbered) Read(b []byte) (int, error) {
	if len(n.left) == 0 {
		if n.next == n.blocks {
			return 0, io.EOF
		}
		n.at(n.next)
		binary.BigEndian.PutUint64(n.block[:], n.next)
		n.left = n.block[:]
		n.next++
	}
	c := copy(b, n.left)
	n.left = n.left[c:]
	return c, nil
}

// memory watches what the agent and the server take, in bytes.
type memory struct {
	t      *testing.T
	b      client.Sandbox
	peak   int64 // of the sandbox's memory, files apart
	failed error
}

// look notes the sandbox's memory, each 64 MiB.
func (m *memory) look(block uint64) {
	if block%(64<<20/blockSize) != 0 {
		return
	}
	now, err := s.Memory(m.t.Context(), m.b.ID)
	if err != nil {
		m.failed = err
	}
	m.peak = max(m.peak, now.Kept())
}

// serverPeak is the most that the server has had since it was last asked, in bytes.
func serverPeak(t *testing.T) int64 {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", s.PID())
	text, err := os.ReadFile(dir + "status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"clear_refs", []byte("5"), 0o200); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// flat is how much more memory a stream may take, whatever its length: buffers on its
// way, and what a collector of garbage lets lie.
const flat = 24 << 20

// TestTwoGiBAreStreamedBothWaysInFlatMemory: of the server's process, and of the sandbox,
// in which the agent is; in make test, 64 MiB, which is more than flat already.
func TestTwoGiBAreStreamedBothWaysInFlatMemory(t *testing.T) {
	s.Guard(t)
	size := int64(64 << 20)
	if lab.Form() != "" {
		size = 2 << 30
	}
	b := create(t, client.NewSandbox{})
	g, err := s.API.Guest(b.ID, b.AccessToken)
	if err != nil {
		t.Fatal(err)
	}
	carry := func(blocks uint64, at func(uint64)) {
		begun := time.Now()
		if err := g.WriteFile(t.Context(), "", "big", &numbered{blocks: blocks, at: at}); err != nil {
			t.Fatal(err)
		}
		up := time.Since(begun)
		if err := readNumbered(t, g, blocks, at); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d MiB: up in %v, down in %v", blocks*blockSize>>20, up, time.Since(begun)-up)
	}
	m := &memory{t: t, b: b}
	carry(1<<20/blockSize*4, func(uint64) {}) // what is used for the first time is no growth
	serverPeak(t)
	m.look(0)
	sandboxBefore, serverBefore := m.peak, serverPeak(t)
	carry(uint64(size)/blockSize, m.look)
	m.look(0)
	server := serverPeak(t)
	t.Logf("sandbox: %d MiB, at most %d; server: %d MiB, at most %d", sandboxBefore>>20, m.peak>>20, serverBefore>>20, server>>20)
	if grown := m.peak - sandboxBefore; m.failed != nil || grown > flat {
		t.Errorf("the sandbox's memory has grown by %d MiB, %v", grown>>20, m.failed)
	}
	if grown := server - serverBefore; grown > flat {
		t.Errorf("the server's memory has grown by %d MiB", grown>>20)
	}
	sh(t, b, `nohup python3 -c 'import signal; held = bytes(range(256)) * (256 << 10); open("/tmp/holds", "w"); signal.pause()' >/dev/null 2>&1 &
until [ -e /tmp/holds ]; do sleep 0.01; done`)
	before := m.peak
	if m.look(0); m.peak < before+flat {
		t.Errorf("of 64 MiB more only %d are seen", (m.peak-before)>>20)
	}
	if got := sh(t, b, "stat -c %s big"); got != fmt.Sprint(size) {
		t.Errorf("inside it has %s bytes", got)
	}
}

// readNumbered reads such a stream back, and compares it.
func readNumbered(t *testing.T, g *client.Guest, blocks uint64, at func(uint64)) error {
	body, err := g.ReadFile(t.Context(), "", "big")
	if err != nil {
		return err
	}
	defer body.Close()
	got, want := make([]byte, blockSize), make([]byte, blockSize)
	for i := range blocks {
		at(i)
		binary.BigEndian.PutUint64(want, i)
		if _, err := io.ReadFull(body, got); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("block %d of %d: %.20q, %w", i, blocks, got, err)
		}
	}
	if n, err := body.Read(got); n != 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("after %d blocks: %d bytes, %w", blocks, n, err)
	}
	return nil
}
