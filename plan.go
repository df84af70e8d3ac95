package cube

import "time"

// Plan is a verb that has begun and not ended: what it does to whom. It is written
// before its first step, together with the phase that it brings about, and dropped
// together with the record of what it led to. Its steps follow from its verb; each can
// be done again. Whoever finds a plan at start finishes it or takes it back.
type Plan struct {
	ID   string // 24 lower-case hex digits
	Verb Verb
	// Sandbox is whom it is about: for VerbCreate the new one, for VerbClone the source,
	// empty for VerbDelete.
	Sandbox SandboxID
	// Image is what it writes (VerbSnapshot, VerbPause), reads (VerbResume,
	// VerbRollback, VerbRecover) or deletes (VerbDelete); empty for the others.
	Image ImageID
	// Made are the clones of VerbClone.
	Made []SandboxID
	// Key and Request are those of the Answer that it leads to; empty without a key.
	Key, Request string
	BeganAt      time.Time
}

// NewPlanID returns a random id for a plan.
func NewPlanID() string { return randomHex(imageIDDigits / 2) }

// Verb names what is done.
type Verb string

// The verbs that have plans.
const (
	VerbCreate   Verb = "create"
	VerbClone    Verb = "clone"
	VerbSnapshot Verb = "snapshot"
	VerbPause    Verb = "pause"
	VerbResume   Verb = "resume"
	VerbRollback Verb = "rollback"
	VerbRecover  Verb = "recover"
	VerbKill     Verb = "kill"
	VerbDelete   Verb = "delete"
)

// PlanState is how far a plan has got, as far as can be seen without doing anything.
type PlanState struct {
	Plan  Plan
	Steps []StepState
	// Ahead: a start would finish it; else it would take it back.
	Ahead bool
}

// StepState is one step of a plan.
type StepState struct {
	Name string
	Done bool
}

// Answer is what a request with an idempotency key led to. The same request with the
// same key is answered by it, until it is forgotten after a day.
type Answer struct {
	Key string // 1 to 255 bytes
	// Request is the SHA-256, in hex, of what was asked for: the same key for
	// something else is refused.
	Request string
	// Sandboxes or Image are what was made.
	Sandboxes []SandboxID
	Image     ImageID
	At        time.Time
}

// Garbage is something on disk that nothing needs.
type Garbage struct {
	Kind  GarbageKind `json:"kind"`
	Name  string      `json:"name"`
	Bytes int64       `json:"bytes"`
	// Why nothing needs it, in one line for a person.
	Why string `json:"why"`
}

// GarbageKind is what sort of thing it is.
type GarbageKind string

// The kinds of garbage.
const (
	GarbageImage   GarbageKind = "image"       // deleted, or half written
	GarbageRootfs  GarbageKind = "file system" // that no image and no sandbox has
	GarbageEngine  GarbageKind = "engine"      // an installed version that no image needs
	GarbageStaging GarbageKind = "staging"     // what a killed process was writing
)

// Folded says what a fold has done: memory that images had in the pages of deleted ones
// was copied together, and these were freed.
type Folded struct {
	// Images is how many have another table.
	Images int
	// Copied and Freed are bytes on disk.
	Copied, Freed int64
}
