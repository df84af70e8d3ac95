package process

// stream is which output of a process bytes came from.
type stream uint8

const (
	stdout stream = iota
	stderr
	terminal
)

const (
	// blockSize is the most that a block holds and that one event carries, in bytes.
	blockSize = 32 << 10
	// eventPTY is the most of a terminal's output that one event carries, in bytes.
	eventPTY = 16 << 10
)

// block is a part of a process's output: bytes that came one after the other, whatever
// their stream. Readers hold what is in it while it grows: what was written once is
// never written again.
type block struct {
	offset int64 // of data[0]
	data   []byte
	runs   []segment
	// earlier is how many runs the blocks before it have.
	earlier int64
}

// segment is where bytes of one stream end in a block. It is small, since a process may
// change the stream with each byte.
type segment struct {
	end    uint16 // at most blockSize
	stream stream
}

// segmentSize is the memory that a segment takes, in bytes.
const segmentSize = 4

func (b *block) end() int64 { return b.offset + int64(len(b.data)) }

// add adds bytes, which it copies, if there is room for all of them.
func (b *block) add(s stream, data []byte) bool {
	if len(b.data)+len(data) > blockSize {
		return false
	}
	b.data = append(b.data, data...)
	end := uint16(len(b.data))
	if n := len(b.runs); n > 0 && b.runs[n-1].stream == s {
		b.runs[n-1].end = end
	} else {
		b.runs = append(b.runs, segment{end, s})
	}
	return true
}

// at returns the bytes of one stream from an offset in the block on.
func (b *block) at(offset int64) (stream, []byte) {
	from := int(offset - b.offset)
	r := b.runs[b.run(offset)]
	to := int(r.end)
	if r.stream == terminal {
		to = min(to, from+eventPTY)
	}
	return r.stream, b.data[from:to:to]
}

// run is which run holds the byte at an offset in the block: the first that ends behind it.
func (b *block) run(offset int64) int {
	from := int(offset - b.offset)
	low, high := 0, len(b.runs)
	for low < high {
		if mid := (low + high) / 2; int(b.runs[mid].end) > from {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}
