// Package api is what cube-network and its clients say to each other: one
// version of a protocol over internal/fdrpc. It imports no network stack, so a
// client stays small.
package api

// Protocol and Version are what hello must name.
const (
	Protocol = "cube-network"
	Version  = 1
)

// Methods. The bodies and descriptors of each stand beside the request types.
const (
	MethodPlug         = "plug"
	MethodUnplug       = "unplug"
	MethodDial         = "dial"
	MethodList         = "list"
	MethodDescriptors  = "descriptors"
	MethodListener     = "listener"
	MethodFreezeEgress = "freeze-egress"
	MethodStats        = "stats"
)

// Codes of errors.
const (
	// CodeInvalid: the request cannot be right, whatever the state.
	CodeInvalid = "invalid"
	// CodeNoLife: no such life is plugged in, or it was unplugged meanwhile.
	CodeNoLife = "no-life"
	// CodeExists: this life is plugged in already, with another NIC.
	CodeExists = "exists"
	// CodeRefused: nothing listens on that port.
	CodeRefused = "refused"
	// CodeTimeout: the guest did not answer in time.
	CodeTimeout = "timeout"
	// CodeUnreachable: the other end of the NIC is gone, or the guest says that
	// it cannot be reached.
	CodeUnreachable = "unreachable"
	// CodeAgent: the guest agent answered nonsense.
	CodeAgent = "agent"
	// CodeLimit: the life has as many connections as it may have.
	CodeLimit = "limit"
)

// LifeLen is the length of a life's name: 32 lower-case hex digits. A life is
// one running instance of a guest kernel. Names are never used again.
const LifeLen = 32

// ValidLife reports whether s has the form of a life's name.
func ValidLife(s string) bool {
	if len(s) != LifeLen {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Life names one life: the body of plug (one descriptor goes with it: our end of
// the NIC), unplug, descriptors (one comes back) and stats.
type Life struct {
	Life string `json:"life"`
}

// Via is how a port is reached.
type Via string

const (
	// ViaAuto tries ViaDirect, and ViaAgent when that is refused.
	ViaAuto Via = "auto"
	// ViaDirect connects to the guest's address: servers on 0.0.0.0.
	ViaDirect Via = "direct"
	// ViaAgent lets the agent inside connect: servers on 127.0.0.1 and [::1].
	ViaAgent Via = "agent"
)

// Dial is the body of dial. One descriptor comes back: a stream socket that is
// the connection.
type Dial struct {
	Life string `json:"life"`
	Port uint16 `json:"port"`
	// TimeoutMS bounds the whole dial, in milliseconds (1 to 60,000; 0: 5,000).
	TimeoutMS int `json:"timeoutMs"`
	// Via: empty is ViaAuto.
	Via Via `json:"via,omitempty"`
	// Control says that the agent's control port is meant: only with it, and only
	// ViaDirect, may that port be dialed. The server never sets it for a user.
	Control bool `json:"control,omitempty"`
}

// Limits of Dial.TimeoutMS, in milliseconds.
const (
	DefaultTimeoutMS = 5_000
	MaxTimeoutMS     = 60_000
)

// FreezeEgress is the body of freeze-egress.
type FreezeEgress struct {
	Life string `json:"life"`
	// Frozen: from now on everything that the guest sends is dropped, except what
	// belongs to connections that were dialed from outside. False ends that.
	Frozen bool `json:"frozen"`
}

// List is the body of list: lives in the order of their names, those after After.
type List struct {
	After string `json:"after,omitempty"`
	// Limit is how many at most (1 to MaxPage; 0: MaxPage).
	Limit int `json:"limit,omitempty"`
}

// MaxPage is how many lives one answer to List can hold.
const MaxPage = 1_000

// Page is the answer to List.
type Page struct {
	Lives []string `json:"lives"`
	// More says that there are lives after the last of these.
	More bool `json:"more,omitempty"`
}

// Stats is the answer to stats: what happened on the NIC since it was plugged
// into this process.
type Stats struct {
	// Up is false when the other end of the NIC has been closed.
	Up bool `json:"up"`
	// EgressFrozen is what the last freeze-egress said.
	EgressFrozen bool `json:"egressFrozen,omitempty"`
	// Connections that are open, dialed from outside.
	Connections int `json:"connections"`
	// Dials that succeeded.
	Dials uint64 `json:"dials"`
	// Frames and bytes (with their 14 bytes of link header) from the guest and to it.
	FramesIn  uint64 `json:"framesIn"`
	FramesOut uint64 `json:"framesOut"`
	BytesIn   uint64 `json:"bytesIn"`
	BytesOut  uint64 `json:"bytesOut"`
	// Rejected frames from the guest: malformed, forged, or of a kind that we do
	// not speak.
	Rejected uint64 `json:"rejected"`
	// Held frames to the guest had to wait because its socket was full; Dropped
	// ones found that queue full too.
	Held    uint64 `json:"held"`
	Dropped uint64 `json:"dropped"`
	// Names that were asked for and denied.
	Names uint64 `json:"names"`
}
