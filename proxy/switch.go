package proxy

import (
	"fmt"
	"net/http"
	"strings"
)

// asAsked refuses a switch of protocols that the request has not asked for. ReverseProxy
// would take one that names none, and leave open the connections of others. It compares
// as ASCII, and nothing else must pass here.
func asAsked(resp *http.Response) error {
	asked, given := resp.Request.Header.Get("Upgrade"), resp.Header.Get("Upgrade")
	if asked == "" || !isPrintable(given) || !strings.EqualFold(asked, given) || !hasToken(resp.Header, "Connection", "upgrade") {
		return fmt.Errorf("it switches to protocol %.64q, where %.64q was asked for", given, asked)
	}
	return nil
}

// isPrintable reports whether a text is of ASCII's printable characters alone. Of two
// such texts strings.EqualFold says what ASCII does.
func isPrintable(text string) bool {
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// hasToken reports whether a header that is a list has a token, in any case.
func hasToken(h http.Header, name, token string) bool {
	for _, list := range h.Values(name) {
		for item := range strings.SplitSeq(list, ",") {
			if item = strings.Trim(item, " \t"); isPrintable(item) && strings.EqualFold(item, token) {
				return true
			}
		}
	}
	return false
}
