package filesystem

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Operations that a signature allows.
const (
	OpRead  = "read"
	OpWrite = "write"
)

// TokenHeader carries a sandbox's access token.
const TokenHeader = "X-Access-Token"

// Signature allows whoever has it to read or write one path without the access
// token. username is empty when the request names none; expires is in Unix
// seconds, empty for never.
func Signature(path, op, username, token, expires string) string {
	text := path + ":" + op + ":" + username + ":" + token
	if expires != "" {
		text += ":" + expires
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// authorize checks a request for a file: it must carry the token or a signature.
func authorize(r *http.Request, query url.Values, op, token string, now time.Time) error {
	if token == "" {
		return nil
	}
	if given := r.Header.Get(TokenHeader); given != "" {
		if !equal(given, token) {
			return errors.New("access token present in header but does not match")
		}
		return nil
	}
	signature := query.Get("signature")
	if signature == "" {
		return errors.New("missing signature query parameter")
	}
	expires := query.Get("signature_expiration")
	if !equal(signature, Signature(query.Get("path"), op, query.Get("username"), token, expires)) {
		return errors.New("invalid signature")
	}
	if expires != "" {
		if at, err := strconv.ParseInt(expires, 10, 64); err != nil || at < now.Unix() {
			return errors.New("signature is already expired")
		}
	}
	return nil
}

// equal compares in a time that does not depend on where the two differ.
func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
