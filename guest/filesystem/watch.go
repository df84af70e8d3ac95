package filesystem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/users"
	"cubesandbox/guest/watch"

	"connectrpc.com/connect"
)

// defaultKeepalive is how often a silent stream says that it is alive when the
// client asks for no other time.
const defaultKeepalive = 90 * time.Second

// NewWatchers returns the watchers of a Service with this runner.
func NewWatchers(runner AsUser) *watch.Set {
	return watch.NewSet(runner, func() func(string) *filesystem.EntryInfo {
		names := users.ReadNames()
		return func(path string) *filesystem.EntryInfo {
			e, err := entry(path, names)
			if err != nil {
				return nil // gone meanwhile
			}
			return e
		}
	})
}

// WatchDir streams what changes in a directory until the client, or its time, ends.
func (s *Service) WatchDir(ctx context.Context, req *connect.Request[filesystem.WatchDirRequest], stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	m := req.Msg
	w, err := s.Watchers.Open(ctx, s.User(req.Header()), m.Path, watch.Options{Recursive: m.Recursive, Entries: m.IncludeEntry, Network: m.AllowNetworkMounts})
	if err != nil {
		return rpcError(err)
	}
	defer w.Close()
	start := &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}
	if err := stream.Send(start); err != nil {
		return err
	}
	every := keepalive(req.Header())
	idle := time.NewTimer(every)
	defer idle.Stop()
	for {
		select {
		case <-w.More():
			err = sendEvents(w, stream)
		case <-idle.C:
			alive := &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}
			err = stream.Send(&filesystem.WatchDirResponse{Event: alive})
		case <-ctx.Done():
			err = ctxError(ctx)
		}
		if err != nil {
			return err
		}
		idle.Reset(every)
	}
}

// sendEvents sends what a watcher has.
func sendEvents(w *watch.Watcher, stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	events, err := w.Take()
	if err != nil {
		return rpcError(err)
	}
	for _, e := range events {
		if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: message(e)}}); err != nil {
			return err
		}
	}
	return nil
}

func ctxError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the time of the watch is over"))
	}
	return connect.NewError(connect.CodeCanceled, ctx.Err())
}

func message(e watch.Event) *filesystem.FilesystemEvent {
	return &filesystem.FilesystemEvent{Name: valid(e.Name), Type: e.Type, Entry: e.Entry}
}

// keepalive is how often the client wants to hear something.
func keepalive(h http.Header) time.Duration {
	if n, err := strconv.Atoi(h.Get("Keepalive-Ping-Interval")); err == nil && n > 0 && n <= 3600 {
		return time.Duration(n) * time.Second
	}
	return defaultKeepalive
}

// CreateWatcher begins to watch a directory for a client that polls.
func (s *Service) CreateWatcher(ctx context.Context, req *connect.Request[filesystem.CreateWatcherRequest]) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	m := req.Msg
	w, err := s.Watchers.Open(ctx, s.User(req.Header()), m.Path, watch.Options{Recursive: m.Recursive, Entries: m.IncludeEntry, Network: m.AllowNetworkMounts})
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: s.Watchers.Keep(w)}), nil
}

// GetWatcherEvents returns what has changed since the last time.
func (s *Service) GetWatcherEvents(_ context.Context, req *connect.Request[filesystem.GetWatcherEventsRequest]) (*connect.Response[filesystem.GetWatcherEventsResponse], error) {
	w := s.Watchers.Ask(req.Msg.WatcherId)
	if w == nil {
		return nil, noWatcher(req.Msg.WatcherId)
	}
	events, err := w.Take()
	if err != nil {
		return nil, rpcError(err)
	}
	res := &filesystem.GetWatcherEventsResponse{Events: make([]*filesystem.FilesystemEvent, 0, len(events))}
	for _, e := range events {
		res.Events = append(res.Events, message(e))
	}
	return connect.NewResponse(res), nil
}

// RemoveWatcher ends what CreateWatcher began.
func (s *Service) RemoveWatcher(_ context.Context, req *connect.Request[filesystem.RemoveWatcherRequest]) (*connect.Response[filesystem.RemoveWatcherResponse], error) {
	if !s.Watchers.Remove(req.Msg.WatcherId) {
		return nil, noWatcher(req.Msg.WatcherId)
	}
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}

func noWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", id))
}
