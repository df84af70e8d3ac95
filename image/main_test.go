package image

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	cube "cubesandbox"
	"cubesandbox/internal/failpoint"
)

// childEnv has what this binary does when it is run as another process, and childArgs
// with what.
const (
	childEnv  = "CUBE_IMAGE_TEST_CHILD"
	childArgs = "CUBE_IMAGE_TEST_ARGS"
)

func TestMain(m *testing.M) {
	do := os.Getenv(childEnv)
	if do == "" {
		os.Exit(m.Run())
	}
	err := failpoint.FromEnv()
	if err == nil {
		err = children[do](strings.Fields(os.Getenv(childArgs)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// children are what another process can do; the first argument is a store.
var children = map[string]func(args []string) error{
	"publish": func(args []string) error { return childPublish(args, false) },
	"durable": func(args []string) error { return childPublish(args, true) },
	"sync": func(args []string) error {
		return withStore(args, func(s *Store) error { return s.Sync(background, cube.ImageID(args[1])) })
	},
	"hide": func(args []string) error {
		return withStore(args, func(s *Store) error { return s.Hide(cube.ImageID(args[1])) })
	},
	"delete": func(args []string) error {
		return withStore(args, func(s *Store) error { return s.Delete(cube.ImageID(args[1])) })
	},
	"add-disk": func(args []string) error {
		return withStore(args, func(s *Store) error { return addDisk(s, cube.ImageID(args[1])) })
	},
	"drop-memory": func(args []string) error {
		return withStore(args, func(s *Store) error {
			_, err := s.DropMemory(cube.ImageID(args[1]))
			return err
		})
	},
	"use": func(args []string) error {
		return withStore(args, func(s *Store) error {
			f, err := s.OpenRootfs(args[1])
			if err != nil {
				return err
			}
			defer f.Close()
			return hold()
		})
	},
	"child": func(args []string) error {
		return withStore(args, func(s *Store) error {
			return childOf(s, cube.ImageID(args[1]), cube.BaseID(args[2]), false, false)
		})
	},
	"durable-child": func(args []string) error {
		return withStore(args, func(s *Store) error {
			return childOf(s, cube.ImageID(args[1]), cube.BaseID(args[2]), true, false)
		})
	},
	"keep": func(args []string) error {
		return withStore(args, func(s *Store) error {
			return childOf(s, cube.ImageID(args[1]), cube.BaseID(args[2]), false, true)
		})
	},
	"fold": func(args []string) error {
		return withStore(args, func(s *Store) error {
			_, err := s.Fold(background, 0)
			return err
		})
	},
	"open": func(args []string) error {
		return withStore(args, func(s *Store) error {
			f, err := s.OpenImage(cube.ImageID(args[1]))
			if err != nil {
				return err
			}
			defer f.Close()
			return hold()
		})
	},
	"write": func(args []string) error {
		return withStore(args, func(s *Store) error {
			w, err := s.Begin(cube.NewSnapshotID(), 1<<20)
			if err != nil {
				return err
			}
			defer w.Abort()
			return hold()
		})
	},
}

// hold says that something is held, and holds it until standard input ends.
func hold() error {
	fmt.Println("held")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func withStore(args []string, f func(s *Store) error) error {
	s, err := Open(args[0])
	if err != nil {
		return err
	}
	return f(s)
}

func childPublish(args []string, durable bool) error {
	return withStore(args, func(s *Store) error {
		w, err := s.Begin(cube.ImageID(args[1]), 1<<20)
		if err != nil {
			return err
		}
		if err := write(w, content(3<<20+4096), []byte("tar")); err != nil {
			return err
		}
		_, err = w.Publish(background, cube.Image{Kind: cube.KindSnapshot}, durable)
		return err
	})
}

// child prepares this binary as another process.
func child(do string, args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+do, childArgs+"="+strings.Join(args, " "))
	return c
}

// holding starts a child that holds something until release.
func holding(t *testing.T, do string, args ...string) (release func()) {
	t.Helper()
	c := child(do, args...)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	release = func() {
		in.Close()
		c.Wait()
	}
	t.Cleanup(release)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	return release
}
