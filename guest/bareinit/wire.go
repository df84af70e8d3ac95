package bareinit

import "golang.org/x/sys/unix"

// Socket is the descriptor on which init finds its end of the agent's stream
// socketpair.
const Socket = 3

// Frames are a length of the payload (uint32), a kind, and the payload; integers
// are little endian.
const (
	HeaderSize = 5
	// MaxRequest bounds a payload to init, in bytes.
	MaxRequest = 2 << 20
	// MaxAnswer bounds a payload from init, in bytes.
	MaxAnswer = 16
	// MaxStrings bounds the strings of a request.
	MaxStrings = 1 << 16
)

// Frame kinds.
const (
	KindSpawn   = 1 // agent → init: a request, with three descriptors
	KindSignal  = 2 // agent → init: pid, signal (uint32 each)
	KindReady   = 3 // init → agent: the namespaces are set up
	KindStarted = 4 // init → agent: pid, step, errno (uint32 each); without a step it runs
	KindExited  = 5 // init → agent: pid, wait status (uint32 each)
	KindFailed  = 6 // init → agent: step, errno (uint32 each) of the setup; init ends
	// KindNotify is agent → init: uid, pid, signal (uint32 each). Any process may be
	// named, and it is sent with the rights of uid. The answer is a KindStarted
	// without a pid: StepNotified, errno.
	KindNotify = 7
)

// A request is RequestWords words (uint32), the supplementary groups (uint32
// each), and strings that end with a NUL: the directory of the control group
// (may be empty), the working directory, the files to try to execute, the
// arguments, the environment.
const (
	WordFlags = iota
	WordUID
	WordGID
	WordGroups     // how many
	WordCandidates // how many files to try
	WordArgs       // how many arguments
	WordEnv        // how many variables
	RequestWords
)

// Flags of a request.
const (
	FlagTerminal    = 1 // descriptor 0 becomes the controlling terminal
	FlagCwdOptional = 2 // without the working directory, / will do
)

// Steps that can fail.
const (
	StepForm         = iota + 1 // the request is malformed
	StepCgroup                  // open the control group
	StepClone                   // make the process
	StepSession                 // session, terminal, descriptors
	StepUser                    // groups and ids
	StepCwd                     // working directory
	StepExec                    // execute
	StepMounts                  // setup: mounts
	StepCapabilities            // setup: capabilities
	StepSignals                 // setup: signals
	StepNotified                // none: a signal was sent, or could not be
)

// UserCapabilities is what root among the users has: Docker's default without
// NET_RAW, for raw sockets are off, and SYS_PTRACE for debuggers. SYS_ADMIN is not among them: with it root could
// mount, unmount and enter namespaces.
const UserCapabilities uint64 = 1<<unix.CAP_AUDIT_WRITE | 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE |
	1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_KILL | 1<<unix.CAP_MKNOD |
	1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SETFCAP | 1<<unix.CAP_SETGID |
	1<<unix.CAP_SETPCAP | 1<<unix.CAP_SETUID | 1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_SYS_PTRACE
