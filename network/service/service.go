// Package service answers the protocol of cube-network: it knows which lives are
// plugged in, and nothing of what came before.
package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"cubesandbox/internal/fdrpc"
	"cubesandbox/network/api"
	"cubesandbox/network/life"
)

// Service holds lives. Safe for concurrent use.
type Service struct {
	log      *slog.Logger
	listener *os.File
	rpc      *fdrpc.Server

	mu    sync.Mutex // guards lives
	lives map[string]*slot
}

// slot is a life, or the place of one that is being opened or closed.
type slot struct {
	life *life.Life
	id   identity
	busy bool
}

// New makes a service for clients with these user ids. listener is what a
// successor would listen on; it stays the caller's.
func New(log *slog.Logger, listener *os.File, uids []uint32) *Service {
	s := &Service{log: log, listener: listener, rpc: fdrpc.NewServer(api.Protocol, api.Version), lives: map[string]*slot{}}
	s.rpc.Allow = func(p fdrpc.Peer) bool { return slices.Contains(uids, p.UID) }
	for method, h := range map[string]fdrpc.Handler{
		api.MethodPlug:         s.plug,
		api.MethodUnplug:       s.unplug,
		api.MethodDial:         s.dial,
		api.MethodList:         s.list,
		api.MethodDescriptors:  s.descriptors,
		api.MethodListener:     s.giveListener,
		api.MethodFreezeEgress: s.freezeEgress,
		api.MethodStats:        s.stats,
	} {
		s.rpc.Handle(method, func(ctx context.Context, r *fdrpc.Request) (any, []*os.File, error) {
			body, files, err := h(ctx, r)
			return body, files, coded(err)
		})
	}
	return s
}

// Serve answers clients until the listener is closed.
func (s *Service) Serve(l *net.UnixListener) error { return s.rpc.Serve(l) }

// Close ends all clients, then unplugs all lives. The guests run on.
func (s *Service) Close() {
	s.rpc.Close()
	for _, o := range s.lives { // no handler is left
		o.life.Close()
	}
	clear(s.lives)
}

func (s *Service) plug(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	name, err := decodeLife(r)
	if err != nil {
		return nil, nil, err
	}
	if len(r.Files) != 1 {
		return nil, nil, fdrpc.Errorf(api.CodeInvalid, "plug wants one descriptor, got %d", len(r.Files))
	}
	id, err := identify(r.Files[0])
	if err != nil {
		return nil, nil, fdrpc.Errorf(api.CodeInvalid, "plug: %v", err)
	}
	s.mu.Lock()
	if o := s.lives[name]; o != nil {
		s.mu.Unlock()
		if o.busy || o.id != id {
			return nil, nil, fdrpc.Errorf(api.CodeExists, "life %s is plugged in already, with another NIC; lives are not used again", name)
		}
		return nil, nil, nil
	}
	o := &slot{id: id, busy: true}
	s.lives[name] = o
	s.mu.Unlock()

	l, err := life.Open(r.Files[0])

	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.lives, name)
		return nil, nil, fdrpc.Errorf(api.CodeInvalid, "plug %s: %v", name, err)
	}
	o.life, o.busy = l, false
	s.log.Info("plugged in", "life", name)
	return nil, nil, nil
}

func (s *Service) unplug(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	name, err := decodeLife(r)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	o := s.lives[name]
	if o == nil {
		s.mu.Unlock()
		return nil, nil, nil
	}
	if o.busy {
		s.mu.Unlock()
		return nil, nil, fdrpc.Errorf(api.CodeExists, "life %s is being plugged in or unplugged; try again", name)
	}
	o.busy = true
	s.mu.Unlock()

	o.life.Close()

	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lives, name)
	s.log.Info("unplugged", "life", name)
	return nil, nil, nil
}

func (s *Service) dial(ctx context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	var d api.Dial
	if err := r.Decode(&d); err != nil {
		return nil, nil, err
	}
	if d.TimeoutMS < 0 || d.TimeoutMS > api.MaxTimeoutMS {
		return nil, nil, fdrpc.Errorf(api.CodeInvalid, "timeout of %d ms; want 0 to %d", d.TimeoutMS, api.MaxTimeoutMS)
	}
	l, err := s.find(d.Life)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(cmp.Or(d.TimeoutMS, api.DefaultTimeoutMS))*time.Millisecond)
	defer cancel()
	f, err := l.Dial(ctx, life.Target{Port: d.Port, Via: d.Via, Control: d.Control})
	if err != nil {
		return nil, nil, err
	}
	return nil, []*os.File{f}, nil
}

func (s *Service) list(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	var q api.List
	if err := r.Decode(&q); err != nil {
		return nil, nil, err
	}
	if q.Limit < 0 || q.Limit > api.MaxPage {
		return nil, nil, fdrpc.Errorf(api.CodeInvalid, "limit of %d; want 0 to %d", q.Limit, api.MaxPage)
	}
	limit := cmp.Or(q.Limit, api.MaxPage)
	names := []string{}
	s.mu.Lock()
	for name, o := range s.lives {
		if name > q.After && !o.busy {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	slices.Sort(names)
	more := len(names) > limit
	return api.Page{Lives: names[:min(limit, len(names))], More: more}, nil, nil
}

func (s *Service) freezeEgress(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	var q api.FreezeEgress
	if err := r.Decode(&q); err != nil {
		return nil, nil, err
	}
	l, err := s.find(q.Life)
	if err != nil {
		return nil, nil, err
	}
	l.FreezeEgress(q.Frozen)
	return nil, nil, nil
}

func (s *Service) stats(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	l, err := s.decodeFind(r)
	if err != nil {
		return nil, nil, err
	}
	return l.Stats(), nil, nil
}

func (s *Service) descriptors(_ context.Context, r *fdrpc.Request) (any, []*os.File, error) {
	l, err := s.decodeFind(r)
	if err != nil {
		return nil, nil, err
	}
	return give(l.NIC())
}

func (s *Service) giveListener(context.Context, *fdrpc.Request) (any, []*os.File, error) {
	return give(s.listener)
}

func decodeLife(r *fdrpc.Request) (string, error) {
	var q api.Life
	if err := r.Decode(&q); err != nil {
		return "", err
	}
	if !api.ValidLife(q.Life) {
		return "", fdrpc.Errorf(api.CodeInvalid, "life %.40q: want %d lower-case hex digits", q.Life, api.LifeLen)
	}
	return q.Life, nil
}

func (s *Service) decodeFind(r *fdrpc.Request) (*life.Life, error) {
	name, err := decodeLife(r)
	if err != nil {
		return nil, err
	}
	return s.find(name)
}

func (s *Service) find(name string) (*life.Life, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.lives[name]; o != nil && !o.busy {
		return o.life, nil
	}
	return nil, fdrpc.Errorf(api.CodeNoLife, "no life %.40q is plugged in", name)
}

// coded gives an error of package life its code.
func coded(err error) error {
	for _, c := range []struct {
		err  error
		code string
	}{
		{life.ErrInvalid, api.CodeInvalid},
		{life.ErrClosed, api.CodeNoLife},
		{life.ErrRefused, api.CodeRefused},
		{life.ErrTimeout, api.CodeTimeout},
		{life.ErrUnreachable, api.CodeUnreachable},
		{life.ErrAgent, api.CodeAgent},
		{life.ErrLimit, api.CodeLimit},
	} {
		if errors.Is(err, c.err) {
			return fdrpc.Errorf(c.code, "%v", err)
		}
	}
	return err
}
