package image

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"
	"time"

	cube "cubesandbox"
)

// Names in the directory of an image. The manifest's name says what the image is:
// changing it is one rename, which a full disk allows.
const (
	manifestName = "manifest.json"
	hiddenName   = "hidden.json" // the manifest, once the image is hidden
	deletedName  = "deleted"     // the manifest, while the files are being removed in place
	durableName  = "durable"
	notesName    = "verified"
)

// What is written: format, and formatBases for an image that has a table. Format 1,
// which had neither a sum of its own nor files apart from memory, is read too.
const (
	format      = 2
	formatBases = 3
)

// The files, those of the memory in the engine's order.
var memoryNames = []string{"kernel", "pages-meta", "pages"}

const (
	pagesIndex = 2
	pagesName  = "pages"
	diskName   = "disk.tar"
	// sourcesName is the table of an image that has bases; once it was replaced, a dot
	// and a number follow.
	sourcesName = "sources"
)

// isSources reports whether a file is a table.
func isSources(name string) bool {
	return name == sourcesName || strings.HasPrefix(name, sourcesName+".")
}

// manifest is what is written beside the files.
type manifest struct {
	Format int `json:"format"`
	// Boot names the life of the machine in which it was written.
	Boot  string     `json:"boot,omitempty"`
	Image cube.Image `json:"image"`
	Files []fileSum  `json:"files"`
	// BaseBytes is how much of its memory lies in each of Image.Bases, in bytes.
	BaseBytes []int64 `json:"baseBytes,omitempty"`
}

// names are those of the files that the image has.
func (m manifest) names() []string {
	var names []string
	for _, f := range m.Files {
		names = append(names, f.Name)
	}
	return names
}

// file returns what is known of one file.
func (m manifest) file(name string) (fileSum, bool) {
	i := slices.IndexFunc(m.Files, func(f fileSum) bool { return f.Name == name })
	if i < 0 {
		return fileSum{}, false
	}
	return m.Files[i], true
}

// sources is what is known of the table; false: there is none.
func (m manifest) sources() (fileSum, bool) {
	i := slices.IndexFunc(m.Files, func(f fileSum) bool { return isSources(f.Name) })
	if i < 0 {
		return fileSum{}, false
	}
	return m.Files[i], true
}

// fitting is the format that has all its files.
func (m manifest) fitting() int {
	if _, ok := m.sources(); ok {
		return formatBases
	}
	return format
}

// base names the pages. Those of an image that was written before there were such names
// are named by their sums.
func (m manifest) base() cube.BaseID {
	pages, ok := m.file(pagesName)
	if !ok || m.Image.Base != "" {
		return m.Image.Base
	}
	sum := binary.LittleEndian.AppendUint64(nil, uint64(pages.Size))
	for _, crc := range pages.CRC {
		sum = binary.LittleEndian.AppendUint32(sum, crc)
	}
	return cube.BaseID(fmt.Sprintf("%s.%08x", m.Image.ID, crc32.Checksum(sum, castagnoli)))
}

// encode is the manifest with a last line that has the CRC-32C of all that is before.
func (m manifest) encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return nil, err
	}
	b = append(b, '\n')
	return append(b, seal(b)...), nil
}

func seal(body []byte) string {
	return fmt.Sprintf("{\"crc32c\":\"%08x\"}\n", crc32.Checksum(body, castagnoli))
}

// manifest reads the one of the given name, manifestName or hiddenName.
func (d *directory) manifest(name string) (manifest, error) {
	m, known := d.recall(name)
	var err error
	if !known {
		if m, err = d.readManifest(name); err != nil {
			return manifest{}, err
		}
	}
	if m.Image.Durable, err = d.has(durableName); err != nil {
		return manifest{}, err
	}
	return m, nil
}

func (d *directory) readManifest(name string) (manifest, error) {
	found, ferr := d.Lstat(name)
	b, err := d.ReadFile(name)
	if err != nil {
		return manifest{}, d.unreadable(name, err)
	}
	m, err := decode(b)
	if err == nil && m.Image.ID != d.id {
		err = fmt.Errorf("it is that of image %q", m.Image.ID)
	}
	if errors.Is(err, cube.ErrIncompatible) {
		return manifest{}, fmt.Errorf("image %s: %w", d.id, err)
	}
	if err != nil {
		return manifest{}, &cube.CorruptError{Image: d.id, File: name, Detail: err.Error()}
	}
	m.Image.Base = m.base()
	if ferr == nil && settled(found) {
		d.known.Store(d.inode, remembered{name, identityIn(found), m})
	}
	return m, nil
}

// remembered is a manifest that was read, and the file that it was in. Those of many
// bases are read for each restore, and are long.
type remembered struct {
	name     string
	identity identity
	manifest manifest
}

// recall returns the manifest of a name if it is still in the file that it was read from.
func (d *directory) recall(name string) (manifest, bool) {
	r, ok := d.known.Load(d.inode)
	if !ok || r.(remembered).name != name {
		return manifest{}, false
	}
	fi, err := d.Lstat(name)
	return r.(remembered).manifest, err == nil && identityIn(fi) == r.(remembered).identity
}

// settled reports whether a file was last changed so long ago that another change would
// give it another time: file systems count it in steps of some milliseconds.
func settled(fi os.FileInfo) bool {
	return time.Since(time.Unix(0, identityIn(fi).Ctime)) > 100*time.Millisecond
}

// decode reads what encode or an earlier version wrote.
func decode(b []byte) (manifest, error) {
	body, sealed := unseal(b)
	var m manifest
	if err := json.Unmarshal(body, &m); err != nil {
		if !sealed {
			return manifest{}, errors.New("its content differs from what was saved")
		}
		return manifest{}, err
	}
	switch {
	case m.Format > formatBases && sealed:
		return manifest{}, fmt.Errorf("it has format %d, this version reads up to %d: %w", m.Format, formatBases, cube.ErrIncompatible)
	case m.Format < 1 || m.Format > formatBases, sealed != (m.Format >= format):
		return manifest{}, errors.New("its content differs from what was saved")
	}
	return m, m.check()
}

// unseal cuts off the last line where it is the sum of what is before it.
func unseal(b []byte) (body []byte, sealed bool) {
	end := bytes.LastIndexByte(bytes.TrimSuffix(b, []byte("\n")), '\n') + 1
	if string(b[end:]) != seal(b[:end]) {
		return b, false
	}
	return b[:end], true
}

// check refuses what no version has written.
func (m manifest) check() error {
	want := slices.Clone(memoryNames)
	switch {
	case m.Image.FilesOnly:
		want = nil
	case m.Image.Kind == cube.KindBase:
		want = []string{pagesName}
	}
	sources, table := m.sources()
	if table {
		want = append(want, sources.Name)
	}
	if _, ok := m.file(diskName); ok {
		want = append(want, diskName)
	}
	if !slices.Equal(m.names(), want) || len(want) == 0 || table && len(want) == 1 {
		return fmt.Errorf("it names the files %q, want %q", m.names(), want)
	}
	if table != (m.Format == formatBases) {
		return fmt.Errorf("it has format %d and the files %q", m.Format, m.names())
	}
	for _, f := range m.Files {
		if f.Size < 0 || int64(len(f.CRC)) != regions(f.Size) {
			return fmt.Errorf("%s has %d bytes and %d sums", f.Name, f.Size, len(f.CRC))
		}
	}
	return m.checkBases(table)
}

func (m manifest) checkBases(table bool) error {
	if len(m.Image.Bases) > MaxBases || len(m.Image.Bases) != len(m.BaseBytes) || len(m.Image.Bases) > 0 && !table {
		return fmt.Errorf("it has %d bases, and sizes for %d", len(m.Image.Bases), len(m.BaseBytes))
	}
	for i, id := range m.Image.Bases {
		if _, err := cube.ParseBaseID(string(id)); err != nil {
			return err
		}
		if id == m.Image.Base || slices.Contains(m.Image.Bases[:i], id) {
			return fmt.Errorf("base %s is itself, or there twice", id)
		}
	}
	return nil
}
