package cube

import (
	"context"
	"net"
)

// Engine runs sandboxes on one machine.
//
// What holds for every method:
//
//   - Concurrency. All methods may be called at the same time. Two verbs on one
//     sandbox never overlap: the second gets ErrConflict at once, except Kill,
//     which waits for the first to end and then wins.
//   - Cancellation. When ctx ends before the point of no return that a method
//     names, the method undoes what it did and returns ctx's error; after it, it
//     completes. A method without such a point can be cancelled at any time.
//   - Failure. A method that fails leaves the sandbox as it was before the call,
//     answering within a second, with its open connections, and leaves no
//     process, mount, cgroup, socket or file behind. Where a method promises
//     less, its comment says so.
//   - Death. A verb on a dead sandbox returns ErrDead; only Kill and Sandbox work.
//   - Ids. A malformed id is ErrInvalid, an unknown one ErrNotFound.
type Engine interface {
	// Boot starts a sandbox cold from a root file system and returns when its
	// agent has answered and has been told the identity. Templates are made in
	// this way; everything else is a restore.
	//
	// Before: no sandbox has spec.ID (else ErrExists).
	// After success: it is running, in generation 1.
	// After failure: it does not exist.
	Boot(ctx context.Context, spec BootSpec) (Sandbox, error)

	// Create makes a new sandbox from an image and returns when the agent of the
	// new life has answered, every page of the image has been read, and the agent
	// has been told who it now is. Nothing reaches the sandbox before that.
	//
	// Before: no sandbox has spec.ID (else ErrExists); the image is published.
	// After success: it is running, in generation max(1, spec.Generation).
	// After failure: it does not exist; the image is unchanged. Errors:
	// ErrNoCapacity before anything is started, ErrCorrupt, ErrIncompatible.
	Create(ctx context.Context, spec CreateSpec) (Sandbox, error)

	// Save writes the state of a running sandbox to a new image, of one instant.
	// The sandbox stands still for some milliseconds, keeps its connections and
	// runs on.
	//
	// Before: running; no image has this id (else ErrExists).
	// After success: the image is complete, verified and published; durable it
	// becomes by the image store.
	// After failure: the image does not exist; the sandbox runs on.
	Save(ctx context.Context, id SandboxID, image ImageID) (Image, error)

	// Pause freezes a sandbox, saves it as Save does, with its files apart from its
	// memory where that can be done, and, when the image is published and durable,
	// ends the process and frees its memory. Publication is the point of no return.
	//
	// Before: running; no image has this id (else ErrExists).
	// After success: the engine no longer knows the sandbox; the caller keeps
	// its id, generation and identity for Resume.
	// After failure: it runs on, in the same generation, with its connections;
	// the image does not exist.
	Pause(ctx context.Context, id SandboxID, image ImageID, p Pausing) (Image, error)

	// Resume brings a paused sandbox back under its id. It is Create for an id
	// that existed before: spec.Generation must be greater than that of the life
	// that was paused, which the engine cannot know.
	//
	// After failure: the sandbox does not run; the image can be resumed again. Where
	// the memory cannot be used (ErrCorrupt, ErrIncompatible), spec.Files may be.
	Resume(ctx context.Context, spec CreateSpec) (Sandbox, error)

	// Rollback takes a running sandbox back to an image, in place: the old life
	// is frozen and its egress closed; a new one is restored beside it; when
	// that has answered, requests are switched to it, which is the point of no
	// return; then the old life is ended. Identity and limits stay; only one life
	// runs at a time.
	//
	// Before: running.
	// After success: same id, identity and tokens; generation one higher; state
	// as in the image. Connections of the old life are reset.
	// After failure: the old life runs on, with its open connections, in its old
	// generation. ErrNoCapacity where there is no memory for the second life.
	Rollback(ctx context.Context, id SandboxID, image ImageID) (Sandbox, error)

	// Clone makes len(specs) new sandboxes from a running one, all from one
	// instant; spec.Image is ignored. At most limit are restored at the same time;
	// 0, and more than the engine thinks good, mean what it thinks good. The source
	// runs on. All or nothing.
	//
	// Before: the source is running; all ids are new and different.
	// After success: all are running, in the order of specs.
	// After failure: none exists, nor does the image that was made on the way.
	// ErrNoCapacity before the source is touched.
	Clone(ctx context.Context, id SandboxID, specs []CreateSpec, limit int) ([]Sandbox, error)

	// Kill ends a sandbox and frees everything that it held. Idempotent: an
	// unknown id is ErrNotFound, a dead one is forgotten and gives nil. It waits
	// for a verb that is at work. It returns when no process of it is left, and
	// cannot be undone; ctx only bounds the wait for another verb.
	Kill(ctx context.Context, id SandboxID) error

	// Sandbox returns one sandbox, dead ones included.
	Sandbox(ctx context.Context, id SandboxID) (Sandbox, error)

	// Sandboxes returns all sandboxes, ordered by id, dead ones included. Members
	// of pools that nobody has claimed are not sandboxes.
	Sandboxes(ctx context.Context) ([]Sandbox, error)

	// Ask asks the agent of a running sandbox once how it is; ctx bounds the wait. nil:
	// it has answered, and programs can be started. ErrAgent, in words for a person:
	// it has not answered, or not as an agent does, or cannot start programs.
	// ErrConflict: the sandbox is frozen, another verb was at work on it meanwhile, or
	// there was no place for the question, so that nothing is known. When ctx is
	// canceled, its error. It changes nothing.
	Ask(ctx context.Context, id SandboxID) error

	// Usage measures a sandbox.
	Usage(ctx context.Context, id SandboxID) (Usage, error)

	// Dial connects to a TCP port inside the sandbox, in the given generation
	// (0: the current one). Servers that listen on 127.0.0.1 inside are reached
	// too. The connection is reset when that life ends. ErrRefused when nothing
	// listens; ErrNotFound when the generation is over.
	Dial(ctx context.Context, id SandboxID, gen Generation, port uint16) (net.Conn, error)

	// SetPools says how many members each pool keeps ready, in the background.
	// It returns at once.
	SetPools(ctx context.Context, pools Pools) error

	// PoolsReady returns when every pool is filled, or with the reason why one
	// cannot be.
	PoolsReady(ctx context.Context) error

	// Events returns what happens to sandboxes from now on, until ctx ends, when
	// the channel is closed. A reader that falls 1,024 events behind is closed too
	// and must list anew.
	Events(ctx context.Context) <-chan Event

	// Close lets go of the engine. Sandboxes run on and are found again by the
	// next one that opens; members of pools are ended.
	Close() error
}

// BootSpec says what to boot.
type BootSpec struct {
	ID       SandboxID
	Identity Identity
	// Rootfs is the SHA-256 digest, in hex, of an EROFS image in the image store.
	Rootfs string
	Limits Limits
}

// CreateSpec says what to restore, and as whom.
type CreateSpec struct {
	ID SandboxID
	// Generation of the new life; 0 means 1.
	Generation Generation
	Identity   Identity
	Image      ImageID
	// Files: boot cold and put the image's files in place before anything gets in.
	// ErrNotFound where the image has none. Images without memory need it.
	Files bool
}

// Pausing says what of a sandbox is kept while it is paused.
type Pausing struct {
	// FilesOnly: what was written to disk, and no memory: Resume boots it cold.
	FilesOnly bool
}

// Pools says what is kept ready.
type Pools struct {
	// Booted is how many sentries are kept booted for each (rootfs, limits) in
	// use: a restore into one saves the time of a boot.
	Booted int
	// Restored is how many sandboxes are kept restored and frozen, by image.
	Restored map[ImageID]int
}
