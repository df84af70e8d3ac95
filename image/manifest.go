package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

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

// format is what is written. Format 1, which had neither a sum of its own nor files
// apart from memory, is read too.
const format = 2

// The files, those of the memory in the engine's order.
var memoryNames = []string{"kernel", "pages-meta", "pages"}

const (
	pagesIndex = 2
	diskName   = "disk.tar"
)

// manifest is what is written beside the files.
type manifest struct {
	Format int `json:"format"`
	// Boot names the life of the machine in which it was written.
	Boot  string     `json:"boot,omitempty"`
	Image cube.Image `json:"image"`
	Files []fileSum  `json:"files"`
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
	if m.Image.Durable, err = d.has(durableName); err != nil {
		return manifest{}, err
	}
	return m, nil
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
	case m.Format > format && sealed:
		return manifest{}, fmt.Errorf("it has format %d, this version reads up to %d: %w", m.Format, format, cube.ErrIncompatible)
	case m.Format != format && m.Format != 1, sealed != (m.Format == format):
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
	if m.Image.FilesOnly {
		want = nil
	}
	if _, ok := m.file(diskName); ok {
		want = append(want, diskName)
	}
	if !slices.Equal(m.names(), want) || len(want) == 0 {
		return fmt.Errorf("it names the files %q, want %q", m.names(), want)
	}
	for _, f := range m.Files {
		if f.Size < 0 || int64(len(f.CRC)) != regions(f.Size) {
			return fmt.Errorf("%s has %d bytes and %d sums", f.Name, f.Size, len(f.CRC))
		}
	}
	return nil
}
