package differential

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"cubesandbox/e2e/lab"
)

// s is the server of all tests in this package.
var s *lab.Server

// program is the guest, as it is put into sandboxes.
var program []byte

func TestMain(m *testing.M) {
	os.Exit(lab.Main(m, &s, ready, "TestEachOperationHasInCopiesTheEffectThatItHasWhereNothingWasSaved", "TestMemoryAlone", "TestFilesAlone",
		"TestUnderLoad", "TestWhileImagesAreReclaimed", "TestARunFailsWhereCopiesLoseAStore", "TestAByteThatIsOtherIsFoundInEachPart"))
}

func ready(ctx context.Context) (err error) {
	if program, err = buildGuest(ctx); err != nil {
		return err
	}
	return warm(ctx)
}

// buildGuest builds it as it is here: it goes into sandboxes of this machine.
func buildGuest(ctx context.Context) (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "differential-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	to := filepath.Join(dir, "guest")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", to, "./guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest: %w: %s", err, out)
	}
	return os.ReadFile(to)
}

// warm uses everything once, so that what is opened at first use looks like no leak.
func warm(ctx context.Context) error {
	return s.Warm(ctx, "base")
}
