package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Anybody may have the sandbox of a signature looked for. What is the same for all
// sandboxes is hashed once; for each there is no more left to hash than its token, the
// expiry and what did not fill a block of 64 bytes: some 0.3 µs, whatever was sent.
const (
	// mostSearches is how many requests look at a time.
	mostSearches = 2
	// searchTime is how long one waits for its turn.
	searchTime = 5 * time.Second
)

// What a link may say, in bytes: no file has a longer path, no user a longer name, and
// an expiry is no longer than the least int64.
const (
	mostPath   = 4096
	mostUser   = 256
	mostExpiry = len("-9223372036854775808")
)

// link is a signed URL of a file (E2B, envd's method signing), which says by its
// signature who may use it: "v1_" and the SHA-256 of
// path:operation:user:token[:expiration], in base64 without padding.
type link struct {
	signature [sha256.Size]byte
	begun     hash.Cloner // has hashed what is before the token
	tail      string      // what is hashed after it
	expires   string      // in Unix seconds, empty for never
}

// isLink reports whether a request for a file wants to be let in by its signature.
func isLink(r *http.Request, path string) bool {
	return path == "/files" && r.URL.Query().Get("signature") != ""
}

// linkOf reads a link; a signature that has not the form of one is none.
func linkOf(r *http.Request) (link, bool) {
	q := r.URL.Query()
	text, ok := strings.CutPrefix(q.Get("signature"), "v1_")
	sum, err := base64.RawStdEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(sum) != sha256.Size {
		return link{}, false
	}
	op := "read"
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		op = "write"
	}
	if !mayBe(q) {
		return link{}, false
	}
	l := linkFor(q, op)
	copy(l.signature[:], sum)
	return l, true
}

// mayBe reports whether a link is short enough for the agent to take it: for others
// nobody is looked for.
func mayBe(q url.Values) bool {
	return len(q.Get("path")) <= mostPath && len(q.Get("username")) <= mostUser && len(q.Get("signature_expiration")) <= mostExpiry
}

// linkFor is one that is not signed yet.
func linkFor(q url.Values, op string) link {
	begun := sha256.New()
	io.WriteString(begun, q.Get("path")+":"+op+":"+q.Get("username")+":")
	l := link{begun: begun.(hash.Cloner), expires: q.Get("signature_expiration")}
	if l.expires != "" {
		l.tail = ":" + l.expires
	}
	return l
}

// fits is whether it was signed with a token. It takes a time that does not depend on
// how much of the signature is right.
func (l link) fits(token string) bool {
	sum := l.sign(token)
	return subtle.ConstantTimeCompare(l.signature[:], sum[:]) == 1
}

func (l link) sign(token string) [sha256.Size]byte {
	h, err := l.begun.Clone()
	if err != nil {
		panic(err) // those of the standard library do not fail
	}
	io.WriteString(h, token+l.tail)
	return [sha256.Size]byte(h.Sum(nil))
}

// expired is as the agent, which is asked later, sees it.
func (l link) expired(now time.Time) bool {
	if l.expires == "" {
		return false
	}
	at, err := strconv.ParseInt(l.expires, 10, 64)
	return err != nil || at < now.Unix()
}

// bySignature finds the sandbox whose access token a link was signed with. One answer
// for all that fit none: of a sandbox that was killed, with another path, of nobody.
func (p *Proxy) bySignature(r *http.Request) (target, *refusal) {
	no := &refusal{http.StatusUnauthorized, "invalid signature"}
	l, ok := linkOf(r)
	if !ok {
		return target{}, no
	}
	if !p.search(r.Context()) {
		return target{}, &refusal{http.StatusServiceUnavailable, "Too many look for the sandbox of a signature; try again, or name the sandbox"}
	}
	id, ok := p.sandboxes.ByToken(l.fits)
	<-p.searches
	switch {
	case !ok:
		return target{}, no
	case l.expired(time.Now()):
		return target{}, &refusal{http.StatusUnauthorized, "signature is already expired"}
	}
	return target{id: id, port: envdPort}, nil
}

// search waits for the turn of a search, which is over with <-p.searches; false when it
// has not come in time.
func (p *Proxy) search(ctx context.Context) bool {
	late := time.NewTimer(searchTime)
	defer late.Stop()
	select {
	case p.searches <- struct{}{}:
		return true
	case <-late.C:
		return false
	case <-ctx.Done():
		panic(http.ErrAbortHandler) // nobody waits
	}
}
