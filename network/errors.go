package network

import (
	"context"
	"errors"
	"fmt"
	"os"

	cube "cubesandbox"
	"cubesandbox/internal/fdrpc"
	"cubesandbox/network/api"
)

// Conditions of a dial that package cube has no word for.
var (
	// ErrTimeout: the guest did not answer in time. It may be frozen.
	ErrTimeout = fmt.Errorf("guest did not answer in time: %w", os.ErrDeadlineExceeded)
	// ErrUnreachable: the guest's end of its NIC is closed; its kernel has ended.
	ErrUnreachable = fmt.Errorf("guest is unreachable: %w", cube.ErrUnavailable)
	// ErrLimit: the guest has as many connections as it may have.
	ErrLimit = fmt.Errorf("too many connections: %w", cube.ErrNoCapacity)
)

var byCode = map[string]error{
	api.CodeInvalid:     cube.ErrInvalid,
	api.CodeNoLife:      cube.ErrNotFound,
	api.CodeExists:      cube.ErrExists,
	api.CodeRefused:     cube.ErrRefused,
	api.CodeTimeout:     ErrTimeout,
	api.CodeUnreachable: ErrUnreachable,
	api.CodeAgent:       cube.ErrAgent,
	api.CodeLimit:       ErrLimit,
	"denied":            cube.ErrUnavailable,
	"version":           cube.ErrUnavailable,
}

// explain makes an error of the protocol one of package cube. What cannot be
// told apart from a dead cube-network is ErrUnavailable.
func explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if known, ok := byCode[fdrpc.Code(err)]; ok {
		return fmt.Errorf("%w: %w", known, err)
	}
	return fmt.Errorf("cube-network: %w: %w", cube.ErrUnavailable, err)
}
