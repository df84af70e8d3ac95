// Package keeperapi is the protocol between the engine and the keeper: the small
// root process that is parent of the sentries. It is versioned, since a server
// works with every installed keeper.
//
// The keeper knows lives. A life is one running sentry; it has an id of its own
// that is never used again, so that nothing can reach the wrong one. What
// sandbox and generation a life is, and whether it is the current one, are labels
// that the engine sets and the keeper keeps, so that an engine that comes back
// finds everything.
//
// Descriptors travel with the message that names them. Times are the keeper's clock.
package keeperapi

import (
	"time"

	cube "cubesandbox"
)

// Protocol and Version are what both sides say in hello.
const (
	Protocol = "cube-keeper"
	Version  = 1
)

// Methods. Each names its request, its files, its answer.
const (
	// MethodInfo: nil → Info.
	MethodInfo = "info"
	// MethodBoot: Boot + [rootfs.erofs, agent.erofs, filestore] → Life. The sentry
	// is up and waits for start or restore.
	MethodBoot = "boot"
	// MethodStart: Ref → nil. Starts process 1.
	MethodStart = "start"
	// MethodRestore: Restore + [kernel, pages-meta, pages, the table of sources if it has
	// one, the pages of each base] → nil. Answers when tasks run; pages that are not used
	// where they lie are still being read.
	MethodRestore = "restore"
	// MethodWaitRestore: Ref → nil when every page has been read.
	MethodWaitRestore = "wait-restore"
	// MethodPause and MethodResume: Ref → nil. They do not nest here: pausing twice
	// is one pause.
	MethodPause  = "pause"
	MethodResume = "resume"
	// MethodSave: Save + [kernel, pages-meta, pages, and from Info.Shares on sources],
	// writable → Saved. A running life runs on, a paused one stays paused.
	MethodSave = "save"
	// MethodAdopt: Adopt + [pages] → nil. The life uses what it has saved last where that
	// lies now, and gives back the memory that this took.
	MethodAdopt = "adopt"
	// MethodFiles: Ref + [the writing end of a pipe] → nil. A tar of the writable layer
	// goes into the pipe, as TarRootfsUpperLayer makes it. The sentry reads each file
	// whole into its heap, for which its limit of memory is raised by what the layer
	// takes on disk: large files can end it all the same, so this comes last. It lasts
	// as long as somebody reads, and fails when the reader goes.
	MethodFiles = "files"
	// MethodLabel: Label → Life.
	MethodLabel = "label"
	// MethodEarlyWrites: Ref → []PageRange, where it wrote first to memory that it shares.
	MethodEarlyWrites = "early-writes"
	// MethodGiveBack: Ref → GaveBack. A keeper does so by itself to a life that is idle.
	MethodGiveBack = "give-back"
	// MethodUsage: Ref → Usage.
	MethodUsage = "usage"
	// MethodKill: Kill → nil when no process of the life is left. Unknown lives are fine.
	MethodKill = "kill"
	// MethodList: List → Lives.
	MethodList = "list"
	// MethodLeave: nil → nil; ends the keeper alone, so that another can take over.
	// It finishes what it has begun, for 90 s at most, and refuses the rest with
	// CodeLeaving; its connections are open until then.
	MethodLeave = "leave"
	// MethodShutdown: nil → nil; ends every life, the network process, and the keeper.
	MethodShutdown = "shutdown"
)

// NoteDied is pushed to every client when a life has ended; body: Life, without the
// identity among its labels.
const NoteDied = "died"

// Codes of errors, beside fdrpc's.
const (
	CodeNoLife  = "no-life"  // unknown life
	CodeDead    = "dead"     // it has ended; detail: cube.Death
	CodeState   = "state"    // not possible in this state
	CodeImage   = "image"    // the sentry refused the image
	CodeExists  = "exists"   // the id is taken
	CodeInvalid = "invalid"  // the request cannot be right
	CodeNoSpace = "no-space" // the disk is full
	CodeLeaving = "leaving"  // this keeper is ending; nothing was done
)

// Info is what a keeper says of itself.
type Info struct {
	PID int `json:"pid"`
	// Inode of the program that the keeper executes: a newer build of the same
	// version has another.
	Inode uint64 `json:"inode"`
	// NetworkInode is the same of its network process; 0 where it cannot be told.
	NetworkInode uint64 `json:"networkInode,omitempty"`
	// Engine is the sentry's version, which decides what can be restored.
	Engine  string    `json:"engine"`
	Started time.Time `json:"started"`
	// Network is the path of the network process's socket.
	Network string `json:"network"`
	// Cgroup is the node below which the lives are, relative to each mount.
	Cgroup string `json:"cgroup"`
	// CPU names the processor features that gVisor sees here, sorted: what a kernel
	// that is saved here may have seen. Empty from keepers that are older.
	CPU []string `json:"cpu,omitempty"`
	// Shares: its lives use pages where they lie, and save only those that lie nowhere yet.
	Shares bool `json:"shares,omitempty"`
}

// Ref names a life.
type Ref struct {
	Life string `json:"life"`
}

// Restore asks for an image to be loaded.
type Restore struct {
	Life string `json:"life"`
	// Base names the pages; empty: they are copied.
	Base cube.BaseID `json:"base,omitempty"`
	// Sources: the table comes along.
	Sources bool `json:"sources,omitempty"`
	// Bases are those whose pages come along.
	Bases []cube.BaseID `json:"bases,omitempty"`
	// Writes are where to expect the first ones, as another life has said that was made
	// of the same; MaxEarlyWrites at most.
	Writes []PageRange `json:"writes,omitempty"`
}

// PageRange is a part of a sentry's memory, in bytes.
type PageRange struct {
	Start uint64 `json:"start"`
	End   uint64 `json:"end"`
}

// GaveBack is what a life does not need any more.
type GaveBack struct {
	// Shared is how many bytes that were its own it shares again.
	Shared int64 `json:"shared"`
}

// MaxEarlyWrites is of how many places a life says that it has written there early.
const MaxEarlyWrites = 1024

// Save asks for an image to be written.
type Save struct {
	Life string `json:"life"`
	// Base is what its pages will be called.
	Base cube.BaseID `json:"base,omitempty"`
	// Most is in how many others pages may lie, so that they are not saved; 0: any number.
	Most int `json:"most,omitempty"`
}

// Adopt says which pages were published that a life has saved.
type Adopt struct {
	Life string      `json:"life"`
	Base cube.BaseID `json:"base"`
	// Bases are those in whose pages the rest of its memory lies.
	Bases []cube.BaseID `json:"bases,omitempty"`
}

// Boot asks for a sentry.
type Boot struct {
	Life   string      `json:"life"` // 32 hex digits
	Limits cube.Limits `json:"limits"`
	// Rootfs and Agent are the digests of the two EROFS images that come along.
	Rootfs string `json:"rootfs"`
	Agent  string `json:"agent"`
	// Labels are set from the start, so that there is no life of nobody.
	Labels Labels `json:"labels"`
}

// Labels are the engine's notes on a life.
type Labels struct {
	Role       Role            `json:"role"`
	Sandbox    cube.SandboxID  `json:"sandbox,omitempty"`
	Generation cube.Generation `json:"generation,omitempty"`
	Image      cube.ImageID    `json:"image,omitempty"`
	// Identity takes at most 32 KiB as JSON.
	Identity cube.Identity `json:"identity,omitzero"`
	// Pausing is the image that a pause is writing. Where that is published, the
	// pause has happened and the life is to be ended.
	Pausing cube.ImageID `json:"pausing,omitempty"`
}

// Role is what a life is for.
type Role string

// The roles.
const (
	// RolePending: a verb is at work; an engine that opens and finds one
	// ends it.
	RolePending Role = "pending"
	// RolePool: kept ready for nobody yet; ended like a pending one.
	RolePool Role = "pool"
	// RoleCurrent: the life of its sandbox. Where a crash left two, the higher
	// generation counts.
	RoleCurrent Role = "current"
)

// Label changes the labels of a life.
type Label struct {
	Life   string `json:"life"`
	Labels Labels `json:"labels"`
	// Resume also resumes the life, after the labels are on disk.
	Resume bool `json:"resume,omitempty"`
}

// Kill ends a life.
type Kill struct {
	Life string `json:"life"`
	// Reason is kept as the death's; empty means cube.DeathKilled.
	Reason cube.DeathReason `json:"reason,omitempty"`
	// Forget also drops the record, as does killing a dead life.
	Forget bool `json:"forget"`
}

// Life is what the keeper knows of one life.
type Life struct {
	Life   string      `json:"life"`
	PID    int         `json:"pid"`
	State  State       `json:"state"`
	Limits cube.Limits `json:"limits"`
	Rootfs string      `json:"rootfs"`
	Agent  string      `json:"agent"`
	Labels Labels      `json:"labels"`
	// Started is when it was booted or, if that was for the pool, taken from there.
	Started time.Time   `json:"started"`
	Death   *cube.Death `json:"death,omitempty"`
	// Detached: it runs, but the other end of its NIC is lost, because keeper and
	// network process died together. Its kernel takes a NIC only at a restore.
	// Or a keeper died while it paused or resumed it, and whether it will ever run
	// again is not known. Only a new life helps either.
	Detached bool `json:"detached,omitempty"`
	// Engine is the sentry's version: of the images that it makes, whichever keeper
	// it is that saves it.
	Engine string `json:"engine,omitempty"`
	// Bases are those in which its memory may lie, the newest first.
	Bases []cube.BaseID `json:"bases,omitempty"`
}

// State is what a life is doing.
type State string

// The states.
const (
	StateBooted  State = "booted"
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateDead    State = "dead"
)

// List asks for lives with an id above After, in order.
type List struct {
	After string `json:"after,omitempty"`
}

// Lives is one page; More says that there is another.
type Lives struct {
	Lives []Life `json:"lives"`
	More  bool   `json:"more"`
}

// Saved says what a save took.
type Saved struct {
	// Wall is how long the sentry worked on it; its tasks stood still for most of it.
	Wall time.Duration `json:"wall"`
}

// Usage is what a life takes, in bytes and nanoseconds.
type Usage struct {
	cube.Usage
	// CommittedBytes is all memory that the guest has committed, written files of
	// the stock engine included: what the next image will hold.
	CommittedBytes int64 `json:"committedBytes"`
}
