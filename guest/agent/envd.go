package agent

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"

	"cubesandbox/guest/envdpb/filesystem/filesystemconnect"
	"cubesandbox/guest/envdpb/process/processconnect"
	"cubesandbox/guest/filesystem"
	"cubesandbox/guest/process"

	"connectrpc.com/connect"
)

// maxMessage bounds an RPC message, in bytes: a command line and environment, or
// one piece of input.
const maxMessage = 6 << 20

const unauthorized = "unauthorized access, please provide a valid access token or method signing if supported"

// envd is E2B's interface for users.
func (a *Agent) envd() http.Handler {
	options := connect.WithHandlerOptions(
		connect.WithReadMaxBytes(maxMessage),
		// Compressing costs the sandbox more than the network saves: megabytes of
		// memory for each stream, and most of the time of a flood of output.
		connect.WithCompressMinBytes(math.MaxInt),
	)
	mux := http.NewServeMux()
	path, handler := processconnect.NewProcessHandler(&process.Service{Table: a.table}, options)
	mux.Handle(path, a.authorized(process.Batched(handler)))
	path, handler = filesystemconnect.NewFilesystemHandler(&filesystem.Service{
		Runner:   a.files,
		Watchers: filesystem.NewWatchers(a.files),
		User:     func(h http.Header) string { return process.RequestUser(h, a.table.User()) },
	}, options)
	mux.Handle(path, a.authorized(handler))
	files := &filesystem.Files{Runner: a.files, Token: a.currentToken, DefaultUser: a.table.User}
	mux.Handle("/files", files)
	mux.Handle("POST /files/compose", a.authorized(http.HandlerFunc(files.Compose)))
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /init", a.handleInit)
	mux.Handle("GET /envs", a.authorized(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		env := a.table.Env()
		if env == nil {
			env = map[string]string{}
		}
		reply(w, env)
	})))
	return mux
}

// authorized asks for the access token, if the sandbox has one.
func (a *Agent) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := a.currentToken()
		if token != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get(filesystem.TokenHeader)), []byte(token)) != 1 {
			filesystem.WriteError(w, http.StatusUnauthorized, unauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// handleInit is what E2B's own server calls after a start. It is for the server
// only: the proxy refuses it from outside, and we from inside.
func (a *Agent) handleInit(w http.ResponseWriter, r *http.Request) {
	c, ok := callerOf(r.Context()).(*conn)
	if !ok || c.inside {
		filesystem.WriteError(w, http.StatusNotFound, "not found")
		return
	}
	var q struct {
		EnvVars        map[string]string `json:"envVars"`
		AccessToken    *string           `json:"accessToken"`
		DefaultUser    string            `json:"defaultUser"`
		DefaultWorkdir string            `json:"defaultWorkdir"`
	}
	if r.ContentLength != 0 {
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxConfigure)).Decode(&q); err != nil && !errors.Is(err, io.EOF) {
			filesystem.WriteError(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	if q.EnvVars != nil {
		a.table.SetEnv(q.EnvVars)
	}
	a.table.SetDefaults(q.DefaultUser, q.DefaultWorkdir)
	if q.AccessToken != nil {
		a.mu.Lock()
		a.token = *q.AccessToken
		a.mu.Unlock()
	}
	w.WriteHeader(http.StatusNoContent)
}
