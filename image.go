package cube

import "time"

// Image describes a saved state. Once published it never changes.
type Image struct {
	ID ImageID `json:"id"`
	// Kind says what it was made for.
	Kind ImageKind `json:"kind"`
	// Source is the sandbox that was saved, and Generation its life; empty for a template.
	Source     SandboxID  `json:"source,omitempty"`
	Generation Generation `json:"generation,omitempty"`
	Created    time.Time  `json:"created"`
	Limits     Limits     `json:"limits"`
	// PagesBytes is how much memory it holds itself (the pages of written files too).
	PagesBytes int64 `json:"pagesBytes"`
	// Base names its pages for others: what is saved of a sandbox that was made from it
	// may lie in them.
	Base BaseID `json:"base,omitempty"`
	// Bases are those in whose pages the rest of its memory lies, nearest first, and
	// SharedBytes is how much that is. Both are empty for an image that stands alone.
	Bases       []BaseID `json:"bases,omitempty"`
	SharedBytes int64    `json:"sharedBytes,omitempty"`
	// Bytes is its own size on disk.
	Bytes int64 `json:"bytes"`
	// Engine names what made it and can restore it: the sentry's version.
	Engine string `json:"engine"`
	// Rootfs and Agent are the SHA-256 digests, in hex, of the two read-only file
	// systems that it needs.
	Rootfs string `json:"rootfs"`
	Agent  string `json:"agent"`
	// CPU names the processor features that its kernel has seen, sorted. Its memory
	// cannot be restored where one of them is missing; its files can.
	CPU []string `json:"cpu,omitempty"`
	// FilesBytes is the size of its files kept apart from its memory: what was
	// written, as a tar. 0: they are in the memory's pages alone.
	FilesBytes int64 `json:"filesBytes,omitempty"`
	// FilesOnly: it has no memory; what is made from it boots cold.
	FilesOnly bool `json:"filesOnly,omitempty"`
	// Durable: it survives a power cut. Every published image survives the end of all
	// processes of ours.
	Durable bool `json:"-"`
}

// Space is what an image takes on disk, in bytes.
type Space struct {
	// Unique is what is free once it is deleted, and no sandbox runs any more that was
	// made from it. Pages of deleted images in which it alone has memory count too.
	Unique int64
	// Shared is memory of it that stays: in pages in which others have memory too, or
	// which are those of an image that is not deleted.
	Shared int64
	// Users are the images that have memory in its pages.
	Users []ImageID
}

// ImageKind is what an image was made for.
type ImageKind string

// The kinds of image.
const (
	KindTemplate ImageKind = "template"
	KindSnapshot ImageKind = "snapshot"
	KindPause    ImageKind = "pause"
	// KindBase: pages alone, in which others have memory: what clones share, or what was
	// copied together from several. Nothing can be made from it.
	KindBase ImageKind = "base"
)
