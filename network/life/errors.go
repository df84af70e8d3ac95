package life

import (
	"errors"
	"fmt"

	"gvisor.dev/gvisor/pkg/tcpip"
)

// Why a dial failed.
var (
	ErrClosed      = errors.New("the life was unplugged")
	ErrRefused     = errors.New("nothing listens on the port")
	ErrTimeout     = errors.New("the guest did not answer in time")
	ErrUnreachable = errors.New("the guest's end of the NIC is closed")
	ErrAgent       = errors.New("the guest agent answered nonsense")
	ErrLimit       = errors.New("too many connections to this guest")
	ErrInvalid     = errors.New("invalid dial")
)

// dialError says what a failed connect means.
func dialError(err tcpip.Error) error {
	switch err.(type) {
	case *tcpip.ErrConnectionRefused, *tcpip.ErrConnectionReset:
		return ErrRefused
	case *tcpip.ErrTimeout:
		return ErrTimeout
	}
	return fmt.Errorf("%w: %s", ErrUnreachable, err)
}
