package cube

import (
	"errors"
	"fmt"
)

// Conditions that a caller can act on. Errors of this module wrap one of them;
// test with errors.Is.
var (
	// ErrInvalid: the request cannot be right, whatever the state. Change it.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: there is no such sandbox, image or generation.
	ErrNotFound = errors.New("not found")
	// ErrExists: the id is taken.
	ErrExists = errors.New("already exists")
	// ErrConflict: another verb is at work on this sandbox, or it is not in the
	// state that the verb needs. Wait, look again.
	ErrConflict = errors.New("conflict")
	// ErrKeyReused: the idempotency key belongs to another request. Use a new one.
	ErrKeyReused = errors.New("idempotency key is used for another request")
	// ErrDead: the sandbox has ended. Its Death says why.
	ErrDead = errors.New("sandbox is dead")
	// ErrNoCapacity: the machine has not enough memory. See CapacityError.
	ErrNoCapacity = errors.New("not enough capacity")
	// ErrNoSpace: the disk of the state directory is full.
	ErrNoSpace = errors.New("no space left")
	// ErrCorrupt: an image is not what was saved. See CorruptError.
	ErrCorrupt = errors.New("image is corrupt")
	// ErrRefused: nothing listens on the port in the sandbox.
	ErrRefused = errors.New("connection refused")
	// ErrAgent: the agent inside did not answer, or answered nonsense.
	ErrAgent = errors.New("guest agent failed")
	// ErrUnavailable: a process of ours (keeper, network) cannot be reached.
	ErrUnavailable = errors.New("unavailable")
	// ErrIncompatible: this machine or this version cannot restore the image.
	ErrIncompatible = errors.New("incompatible image")
	// ErrUnsupported: this engine cannot do that at all.
	ErrUnsupported = errors.New("not supported by this engine")
)

// CapacityError is an ErrNoCapacity with its figures.
type CapacityError struct {
	What         string // "memory" or "CPUs"
	Needed, Free int64  // bytes of memory, numbers of CPUs
}

func (e *CapacityError) Error() string {
	if e.What != "memory" {
		return fmt.Sprintf("not enough %s: %d needed, %d free; kill or pause sandboxes, or ask for fewer", e.What, e.Needed, e.Free)
	}
	return fmt.Sprintf("not enough %s: %d MiB needed, %d MiB free; kill or pause sandboxes, or ask for fewer",
		e.What, e.Needed>>20, e.Free>>20)
}

// Unwrap makes errors.Is(err, ErrNoCapacity) true.
func (e *CapacityError) Unwrap() error { return ErrNoCapacity }

// CorruptError is an ErrCorrupt that names the file.
type CorruptError struct {
	Image  ImageID
	File   string // name within the image
	Detail string // what was found, what was expected
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("image %s is corrupt: %s: %s; delete it and use another", e.Image, e.File, e.Detail)
}

// Unwrap makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }
