package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// mostSearches is how many requests look for the sandbox of a signature at a time. Each
// hashes once for every sandbox that there is (some 0.2 µs), and anybody may ask.
const mostSearches = 2

// link is a signed URL of a file (E2B, envd's method signing), which says by its
// signature who may use it: "v1_" and the SHA-256 of
// path:operation:user:token[:expiration], in base64 without padding.
type link struct {
	signature  [sha256.Size]byte
	head, tail string // what is hashed before and after the token
	expires    string // in Unix seconds, empty for never
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
	l := linkFor(q, op)
	copy(l.signature[:], sum)
	return l, true
}

// linkFor is one that is not signed yet.
func linkFor(q url.Values, op string) link {
	l := link{head: q.Get("path") + ":" + op + ":" + q.Get("username") + ":", expires: q.Get("signature_expiration")}
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
	return sha256.Sum256([]byte(l.head + token + l.tail))
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
	if err := p.search(r.Context()); err != nil {
		panic(http.ErrAbortHandler) // nobody waits
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

// search waits for the turn of a search, which is over with <-p.searches.
func (p *Proxy) search(ctx context.Context) error {
	select {
	case p.searches <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
