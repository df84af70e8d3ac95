package filesystem

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/sys/unix"
)

// Metadata of an upload stands in extended attributes of the file.
const (
	metadataHeader = "X-Metadata-"
	metadataPrefix = "user.e2b."
	maxMetadataKey = 246  // bytes, what a name of an attribute leaves
	maxMetadata    = 4096 // bytes, keys and values together
)

// requestMetadata returns what a request's X-Metadata- headers say; keys are
// lower-case.
func requestMetadata(h http.Header) (map[string]string, error) {
	var meta map[string]string
	total := 0
	for name, values := range h {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok || len(values) == 0 {
			continue
		}
		key, value := strings.ToLower(key), values[0]
		total += len(key) + len(value)
		switch {
		case key == "" || len(key) > maxMetadataKey:
			return nil, fmt.Errorf("metadata key '%s' must have 1 to %d characters", key, maxMetadataKey)
		case !printable(key) || !printable(value):
			return nil, fmt.Errorf("metadata '%s' must be printable ASCII", key)
		case total > maxMetadata:
			return nil, fmt.Errorf("metadata is longer than %d bytes", maxMetadata)
		}
		if meta == nil {
			meta = make(map[string]string)
		}
		meta[key] = value
	}
	return meta, nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// replaceMetadata makes meta the file's metadata.
func replaceMetadata(fd int, meta map[string]string) error {
	for _, name := range attributes(func(b []byte) (int, error) { return unix.Flistxattr(fd, b) }) {
		if key := strings.TrimPrefix(name, metadataPrefix); meta[key] == "" {
			unix.Fremovexattr(fd, name)
		}
	}
	for key, value := range meta {
		if err := unix.Fsetxattr(fd, metadataPrefix+key, []byte(value), 0); err != nil {
			return fmt.Errorf("set metadata '%s': %w", key, err)
		}
	}
	return nil
}

// readMetadata returns a file's metadata, nil when there is none.
func readMetadata(path string) map[string]string {
	var meta map[string]string
	total := 0
	for _, name := range attributes(func(b []byte) (int, error) { return unix.Llistxattr(path, b) }) {
		value := make([]byte, maxMetadata)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil || !printable(string(value[:n])) || !printable(name) {
			continue
		}
		if total += len(name) - len(metadataPrefix) + n; total > maxMetadata {
			break // more than can be set through us
		}
		if meta == nil {
			meta = make(map[string]string)
		}
		meta[strings.TrimPrefix(name, metadataPrefix)] = string(value[:n])
	}
	return meta
}

// attributes returns the names of those that hold metadata.
func attributes(list func([]byte) (int, error)) (names []string) {
	n, err := list(nil)
	if err != nil || n == 0 {
		return nil
	}
	b := make([]byte, min(n+256, 64<<10))
	if n, err = list(b); err != nil {
		return nil
	}
	for name := range strings.SplitSeq(string(b[:n]), "\x00") {
		if strings.HasPrefix(name, metadataPrefix) {
			names = append(names, name)
		}
	}
	return names
}
