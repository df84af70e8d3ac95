package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	cube "cubesandbox"
)

// Conditions that only somebody who calls from outside meets.
var (
	// ErrUnauthorized: the key or the token is absent or wrong.
	ErrUnauthorized = errors.New("not authorized")
	// ErrUnreachable: nothing answers at the address.
	ErrUnreachable = errors.New("no server answers")
)

// Error is an answer of the server that says that something failed.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Code is a word for programs, such as sandbox_capacity_unavailable; mostly empty.
	Code string
	// Message is for people.
	Message string
	// RequestID finds the request in the server's log.
	RequestID string

	kind error // what it means, where the status does not say
}

func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the server answered %d %s", e.Status, http.StatusText(e.Status))
	}
	return e.Message
}

// kinds are what the statuses mean; others mean nothing that a caller could act on.
var kinds = map[int]error{
	http.StatusBadRequest:            cube.ErrInvalid,
	http.StatusUnauthorized:          ErrUnauthorized,
	http.StatusForbidden:             ErrUnauthorized,
	http.StatusNotFound:              cube.ErrNotFound,
	http.StatusRequestTimeout:        cube.ErrUnavailable,
	http.StatusConflict:              cube.ErrConflict,
	http.StatusGone:                  cube.ErrDead,
	http.StatusRequestEntityTooLarge: cube.ErrInvalid,
	http.StatusUnprocessableEntity:   cube.ErrInvalid,
	http.StatusTooManyRequests:       cube.ErrNoCapacity,
	http.StatusNotImplemented:        cube.ErrUnsupported,
	http.StatusServiceUnavailable:    cube.ErrUnavailable,
	http.StatusGatewayTimeout:        cube.ErrUnavailable,
	http.StatusInsufficientStorage:   cube.ErrNoSpace,
}

// words are what the API's own words mean; E2B's say no more than the status. What an
// agent says has no such meaning.
var words = map[string]error{
	"idempotency_key_reused": cube.ErrKeyReused,
	"image_corrupt":          cube.ErrCorrupt,
	"image_incompatible":     cube.ErrIncompatible,
}

// Unwrap makes errors.Is work with the root package's errors.
func (e *Error) Unwrap() error {
	if e.kind != nil {
		return e.kind
	}
	return kinds[e.Status]
}

// readError reads an answer that is no success.
func readError(res *http.Response) *Error {
	b, _ := io.ReadAll(io.LimitReader(res.Body, maxMessage)) // what was read has to do
	return parseError(res, b)
}

// readAPIError is readError for an answer of the API.
func readAPIError(res *http.Response) *Error {
	e := readError(res)
	if kind := words[e.Code]; kind != nil {
		e.kind = kind
	}
	return e
}

func parseError(res *http.Response, body []byte) *Error {
	e := &Error{Status: res.StatusCode, RequestID: res.Header.Get("X-Request-Id")}
	var said struct {
		Message string `json:"message"`
		Error   any    `json:"error"` // the data plane's, and envd's
		Code    string `json:"error_code"`
		// Those two are in what the data plane answers E2B's clients, always with 502.
		Sandbox string `json:"sandboxId"`
		Port    int    `json:"port"`
	}
	if json.Unmarshal(body, &said) != nil {
		e.Message = oneLine(body)
		return e
	}
	e.Message, e.Code = harmless(said.Message), said.Code
	if text, ok := said.Error.(string); ok && e.Message == "" {
		e.Message = harmless(text)
	}
	switch {
	case res.StatusCode != http.StatusBadGateway || said.Sandbox == "":
	case said.Port != 0:
		e.kind = cube.ErrRefused
	default:
		e.kind = cube.ErrNotFound
	}
	return e
}

// oneLine is the beginning of a text, without what a terminal would obey.
func oneLine(b []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(b[:min(len(b), 300)])), "\n")
	return harmless(line)
}

// harmless is a text without what a terminal would obey: a guest may have had a hand in
// it.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, s)
}

// unreachable says where nothing answers; the end of ctx stays what it is.
func unreachable(ctx context.Context, at *url.URL, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w at %s://%s: %w", ErrUnreachable, at.Scheme, at.Host, err)
}
