package cube

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
)

// SandboxID names a sandbox for as long as it exists: 32 lower-case hex digits.
// It stays the same through pause, resume and rollback.
type SandboxID string

// ImageID names a saved state: "tpl-" (template) or "snap-" (snapshot, pause)
// and 24 lower-case hex digits.
type ImageID string

// BaseID names the pages of one image for ever: its id, a dot, and 8 lower-case hex
// digits. The id of an image can be given again (that of a template, which follows from
// its content); this cannot.
type BaseID string

// Generation says which life of a sandbox is meant. The first is 1; restore,
// resume and rollback begin the next one under the same id.
type Generation uint64

const (
	sandboxIDLen = 32
	// hostnameDigits is how many of them are the host name inside, where none is given.
	hostnameDigits = 12
	imageIDDigits  = 24
	baseIDDigits   = 8

	templatePrefix = "tpl-"
	snapshotPrefix = "snap-"
)

// NewSandboxID returns a random sandbox id. A letter is among its first 12 digits, which
// are the host name inside: glibc takes a name of decimal digits for an address, and
// does not find it in /etc/hosts.
func NewSandboxID() SandboxID {
	for {
		if id := randomHex(sandboxIDLen / 2); strings.ContainsAny(id[:hostnameDigits], "abcdef") {
			return SandboxID(id)
		}
	}
}

// Hostname is what a sandbox is called inside, where it was given no other name.
func (id SandboxID) Hostname() string { return string(id[:hostnameDigits]) }

// NewSnapshotID returns a random id for the saved state of a sandbox.
func NewSnapshotID() ImageID { return ImageID(snapshotPrefix + randomHex(imageIDDigits/2)) }

// TemplateIDFromDigest returns the id of the template whose content has the
// digest sum: the same content has the same id on every machine.
func TemplateIDFromDigest(sum [32]byte) ImageID {
	return ImageID(templatePrefix + hex.EncodeToString(sum[:imageIDDigits/2]))
}

// NewBaseID returns a name for the pages of an image that is about to be written.
func NewBaseID(id ImageID) BaseID { return BaseID(string(id) + "." + randomHex(baseIDDigits/2)) }

// ParseSandboxID checks the form of s.
func ParseSandboxID(s string) (SandboxID, error) {
	if len(s) != sandboxIDLen || !isHex(s) {
		return "", fmt.Errorf("sandbox id %q: want %d lower-case hex digits: %w", s, sandboxIDLen, ErrInvalid)
	}
	return SandboxID(s), nil
}

// ParseImageID checks the form of s.
func ParseImageID(s string) (ImageID, error) {
	digits, ok := strings.CutPrefix(s, templatePrefix)
	if !ok {
		digits, ok = strings.CutPrefix(s, snapshotPrefix)
	}
	if !ok || len(digits) != imageIDDigits || !isHex(digits) {
		return "", fmt.Errorf("image id %q: want tpl- or snap- and %d lower-case hex digits: %w", s, imageIDDigits, ErrInvalid)
	}
	return ImageID(s), nil
}

// ParseBaseID checks the form of s.
func ParseBaseID(s string) (BaseID, error) {
	id, digits, _ := strings.Cut(s, ".")
	if _, err := ParseImageID(id); err != nil || len(digits) != baseIDDigits || !isHex(digits) {
		return "", fmt.Errorf("base %q: want an image id, a dot, and %d lower-case hex digits: %w", s, baseIDDigits, ErrInvalid)
	}
	return BaseID(s), nil
}

// Image is the image whose pages they were at first.
func (b BaseID) Image() ImageID {
	id, _, _ := strings.Cut(string(b), ".")
	return ImageID(id)
}

// IsTemplate reports whether the id is that of a template.
func (id ImageID) IsTemplate() bool { return strings.HasPrefix(string(id), templatePrefix) }

func isHex(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails: it ends the program instead
	return hex.EncodeToString(b)
}
