package filesystem

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

const token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"

func TestSignatureIsE2Bs(t *testing.T) {
	const want = "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"
	if got := Signature("hello.txt", OpRead, "user", token, ""); got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

func TestAuthorizeFile(t *testing.T) {
	now := time.Unix(1000, 0)
	const bad = "invalid signature"
	query := func(path, user, op, key, exp string) string {
		q := "path=" + path + "&username=" + user + "&signature=" + httpEscape(Signature(path, op, user, key, exp))
		if exp != "" {
			q += "&signature_expiration=" + exp
		}
		return q
	}
	for name, c := range map[string]struct{ query, header, want string }{
		"nothing":              {"path=a", "", "missing signature query parameter"},
		"token":                {"path=a", token, ""},
		"wrong token":          {"path=a", "x", "access token present in header but does not match"},
		"wrong token, signed":  {query("a", "user", OpRead, token, ""), "x", "access token present in header but does not match"},
		"signed":               {query("a", "user", OpRead, token, ""), "", ""},
		"signed, no user":      {query("a", "", OpRead, token, ""), "", ""},
		"signed, later end":    {query("a", "user", OpRead, token, "1001"), "", ""},
		"signed, past end":     {query("a", "user", OpRead, token, "999"), "", "signature is already expired"},
		"signed, end no time":  {query("a", "user", OpRead, token, "soon"), "", "signature is already expired"},
		"other key":            {query("a", "user", OpRead, "other", ""), "", bad},
		"for writing":          {query("a", "user", OpWrite, token, ""), "", bad},
		"other path":           {query("a", "user", OpRead, token, "") + "&path=b", "", ""}, // the first counts
		"end changed":          {query("a", "user", OpRead, token, "999") + "9", "", bad},
		"end left out":         {"path=a&username=user&signature=" + httpEscape(Signature("a", OpRead, "user", token, "1001")), "", bad},
		"other user":           {"path=a&username=root&signature=" + httpEscape(Signature("a", OpRead, "user", token, "")), "", bad},
		"signature of nothing": {"path=a&signature=v1_", "", bad},
	} {
		r := httptest.NewRequest(http.MethodGet, "/files?"+c.query, nil)
		if c.header != "" {
			r.Header.Set(TokenHeader, c.header)
		}
		got := ""
		if err := authorize(r, r.URL.Query(), OpRead, token, now); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/files?path=a", nil)
	if err := authorize(r, r.URL.Query(), OpRead, "", now); err != nil {
		t.Errorf("a sandbox without token asks for one: %v", err)
	}
}
