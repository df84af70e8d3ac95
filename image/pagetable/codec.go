package pagetable

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const magic = "CUBEPTB1"

// entrySize is that of an entry as it is written, in bytes.
const entrySize = 32

// Write writes a table. One that Check refuses is an error, and nothing is written.
func Write(w io.Writer, t Table) error {
	if err := t.Check(); err != nil {
		return fmt.Errorf("page table: %w", err)
	}
	b := bufio.NewWriter(w) // keeps its first error until the end
	b.WriteString(magic)
	u32 := func(v int) { b.Write(binary.LittleEndian.AppendUint32(nil, uint32(v))) }
	text := func(s string) {
		u32(len(s))
		b.WriteString(s)
	}
	u32(len(t.Names))
	for _, name := range t.Names {
		text(name)
	}
	u32(len(t.Files))
	for _, f := range t.Files {
		text(f.Key)
		b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(f.Entries))))
		for _, e := range f.Entries {
			b.Write(e.encode())
		}
	}
	return b.Flush()
}

func (e Entry) encode() []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(make([]byte, 0, entrySize), e.Start)
	b = le.AppendUint64(b, e.End)
	b = le.AppendUint32(b, e.Name)
	b = le.AppendUint32(b, 0)
	return le.AppendUint64(b, e.Offset)
}

// Read reads a table to the end of r. What Write would not have written is an error; so
// is what follows the table.
func Read(r io.Reader) (Table, error) {
	d := decoder{r: bufio.NewReader(r)}
	t, err := d.table()
	if err == nil {
		err = t.Check()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends too early")
	}
	if err != nil {
		return Table{}, fmt.Errorf("page table: %w", err)
	}
	return t, nil
}

// decoder reads what comes next. Nothing is set aside for a number that has not come.
type decoder struct {
	r    *bufio.Reader
	left int // entries that may still come
}

func (d *decoder) table() (t Table, err error) {
	d.left = MaxEntries
	if got, err := d.bytes(len(magic)); err != nil || string(got) != magic {
		return Table{}, errors.Join(errors.New("it is none: its first bytes are others"), err)
	}
	names, err := d.count("names", MaxNames)
	for range names {
		var name string
		if name, err = d.text("name", MaxName); err != nil {
			return Table{}, err
		}
		t.Names = append(t.Names, name)
	}
	if err != nil {
		return Table{}, err
	}
	files, err := d.count("memory files", MaxFiles)
	for range files {
		var f File
		if f, err = d.file(); err != nil {
			return Table{}, err
		}
		t.Files = append(t.Files, f)
	}
	if err != nil {
		return Table{}, err
	}
	if _, err := d.r.ReadByte(); err != io.EOF {
		return Table{}, errors.Join(errors.New("something follows it"), err)
	}
	return t, nil
}

func (d *decoder) file() (f File, err error) {
	if f.Key, err = d.text("memory file", MaxKey); err != nil {
		return File{}, err
	}
	b, err := d.bytes(8)
	if err != nil {
		return File{}, err
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(d.left) {
		return File{}, fmt.Errorf("it has more than %d entries", MaxEntries)
	}
	d.left -= int(n)
	for range n {
		b, err := d.bytes(entrySize)
		if err != nil {
			return File{}, err
		}
		le := binary.LittleEndian
		if le.Uint32(b[20:]) != 0 {
			return File{}, errors.New("an entry has something where zero is")
		}
		f.Entries = append(f.Entries, Entry{le.Uint64(b), le.Uint64(b[8:]), le.Uint32(b[16:]), le.Uint64(b[24:])})
	}
	return f, nil
}

func (d *decoder) bytes(n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(d.r, b)
	return b, err
}

func (d *decoder) count(of string, most int) (int, error) {
	b, err := d.bytes(4)
	if err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(most) {
		return 0, fmt.Errorf("it has %d %s, %d are the most", n, of, most)
	}
	return int(n), nil
}

func (d *decoder) text(what string, most int) (string, error) {
	n, err := d.count("bytes in a "+what, most)
	if err != nil {
		return "", err
	}
	b, err := d.bytes(n)
	return string(b), err
}
