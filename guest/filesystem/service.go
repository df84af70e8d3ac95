package filesystem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/spawn"
	"cubesandbox/guest/users"
	"cubesandbox/guest/watch"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// AsUser runs f with the rights of the user of that name, where the user's paths
// mean what the user thinks; *asuser.Runner does.
type AsUser interface {
	Do(ctx context.Context, name string, f func(users.User) error) error
}

// Service is envd's filesystem.Filesystem.
type Service struct {
	Runner AsUser
	// Watchers are those of NewWatchers.
	Watchers *watch.Set
	// User returns the user that a request with these headers is from.
	User func(http.Header) string

	long gate // see listing
}

// do runs f as the request's user with the path that the user means.
func (s *Service) do(ctx context.Context, h http.Header, path string, f func(path string, u users.User) error) error {
	return rpcError(s.Runner.Do(ctx, s.User(h), func(u users.User) error { return f(spawn.Resolve(u, path), u) }))
}

// Stat describes a file.
func (s *Service) Stat(ctx context.Context, req *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	res := &filesystem.StatResponse{}
	err := s.do(ctx, req.Header(), req.Msg.Path, func(path string, _ users.User) (err error) {
		res.Entry, err = entry(path, users.ReadNames())
		return err
	})
	return answer(res, err)
}

// ListDir lists a directory.
func (s *Service) ListDir(ctx context.Context, req *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	res := &filesystem.ListDirResponse{}
	depth := min(max(int(req.Msg.Depth), 1), maxDepth)
	l := listing{long: &s.long}
	defer l.end()
	list := func() error {
		return s.do(ctx, req.Header(), req.Msg.Path, func(path string, _ users.User) error { return l.make(path, depth) })
	}
	err := list()
	if errors.Is(err, errLong) {
		// To wait is for here, where nobody else's operation waits for us.
		if err = l.begin(ctx); err == nil {
			err = list()
		}
	}
	res.Entries = l.entries
	return answer(res, rpcError(err))
}

// MakeDir makes a directory and its parents.
func (s *Service) MakeDir(ctx context.Context, req *connect.Request[filesystem.MakeDirRequest]) (*connect.Response[filesystem.MakeDirResponse], error) {
	res := &filesystem.MakeDirResponse{}
	err := s.do(ctx, req.Header(), req.Msg.Path, func(path string, _ users.User) error {
		switch info, err := os.Stat(path); {
		case err == nil && info.IsDir():
			return connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", path))
		case err == nil:
			return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path already exists but it is not a directory: %s", path))
		case !os.IsNotExist(err):
			return err
		}
		err := os.MkdirAll(path, 0o755)
		if err == nil {
			res.Entry, err = entry(path, users.ReadNames())
		}
		return err
	})
	return answer(res, err)
}

// Move renames a file or directory, and makes the parents of its new place.
func (s *Service) Move(ctx context.Context, req *connect.Request[filesystem.MoveRequest]) (*connect.Response[filesystem.MoveResponse], error) {
	res := &filesystem.MoveResponse{}
	err := s.do(ctx, req.Header(), req.Msg.Source, func(source string, u users.User) error {
		if _, err := os.Lstat(source); err != nil {
			return err
		}
		destination := spawn.Resolve(u, req.Msg.Destination)
		if err := os.MkdirAll(filepath.Dir(destination), 0o755); err != nil {
			return err
		}
		err := os.Rename(source, destination)
		if err == nil {
			res.Entry, err = entry(destination, users.ReadNames())
		}
		return err
	})
	return answer(res, err)
}

// Remove removes a file, or a directory with all that is in it; nothing happens
// if there is none.
func (s *Service) Remove(ctx context.Context, req *connect.Request[filesystem.RemoveRequest]) (*connect.Response[filesystem.RemoveResponse], error) {
	err := s.do(ctx, req.Header(), req.Msg.Path, func(path string, _ users.User) error { return removeAll(ctx, path) })
	return answer(&filesystem.RemoveResponse{}, err)
}

func answer[T any](msg *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(msg), nil
}

// rpcError gives an error its Connect code.
func rpcError(err error) error {
	var already *connect.Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	code := connect.CodeInternal
	switch {
	case errors.Is(err, users.ErrUnknown):
		code = connect.CodeUnauthenticated
	case errors.Is(err, os.ErrNotExist), errors.Is(err, watch.ErrGone):
		code = connect.CodeNotFound
	case errors.Is(err, os.ErrPermission):
		code = connect.CodePermissionDenied
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, watch.ErrNotDirectory), errors.Is(err, watch.ErrNetwork):
		code = connect.CodeInvalidArgument
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		code = connect.CodeFailedPrecondition
	case errors.Is(err, os.ErrExist), errors.Is(err, unix.ENOTEMPTY):
		code = connect.CodeAlreadyExists
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, errTooMany), errors.Is(err, errTooDeep), errors.Is(err, watch.ErrTooMany):
		code = connect.CodeResourceExhausted
	case errors.Is(err, watch.ErrLost):
		code = connect.CodeDataLoss
	case errors.Is(err, spawn.ErrInitDied), errors.Is(err, watch.ErrClosed):
		code = connect.CodeAborted
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	}
	return connect.NewError(code, err)
}
