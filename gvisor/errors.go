package gvisor

import (
	"context"
	"errors"
	"fmt"

	cube "cubesandbox"
	"cubesandbox/gvisor/keeperapi"
	"cubesandbox/internal/fdrpc"
)

var byCode = map[string]error{
	keeperapi.CodeNoLife:  cube.ErrDead, // it is dead and forgotten
	keeperapi.CodeDead:    cube.ErrDead,
	keeperapi.CodeState:   cube.ErrConflict,
	keeperapi.CodeExists:  cube.ErrExists,
	keeperapi.CodeInvalid: cube.ErrInvalid,
	keeperapi.CodeNoSpace: cube.ErrNoSpace,
	keeperapi.CodeImage:   cube.ErrCorrupt,
	keeperapi.CodeLeaving: cube.ErrUnavailable,
	"version":             cube.ErrUnavailable,
	"unknown-method":      cube.ErrUnsupported, // of a keeper that is older
	"denied":              cube.ErrUnavailable,
}

// explain makes an error of the keeper's protocol one of package cube.
func explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if known, ok := byCode[fdrpc.Code(err)]; ok {
		return fmt.Errorf("%w: %w", known, err)
	}
	if errors.Is(err, fdrpc.ErrClosed) {
		return fmt.Errorf("keeper: %w: %w", cube.ErrUnavailable, err)
	}
	return err
}
