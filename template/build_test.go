package template

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	cube "cubesandbox"
	"cubesandbox/guest/envdpb/process"
	"cubesandbox/guest/envdpb/process/processconnect"
)

// store keeps what a build gives it.
type store struct {
	digest string // what PutRootfs says
	images map[cube.ImageID]cube.Image
	torn   map[cube.ImageID]bool // those whose manifest is; whether they were durable
}

func (s *store) PutRootfs(_ context.Context, path string) (string, error) {
	if s.digest != "" {
		return s.digest, nil
	}
	return digestFile(path)
}

func (s *store) Image(id cube.ImageID) (cube.Image, error) {
	if im, ok := s.images[id]; ok {
		return im, nil
	}
	if durable, ok := s.torn[id]; ok {
		return cube.Image{ID: id, Durable: durable}, &cube.CorruptError{Image: id, File: "manifest.json"}
	}
	return cube.Image{}, fmt.Errorf("image %s: %w", id, cube.ErrNotFound)
}

func (s *store) Delete(id cube.ImageID) error {
	delete(s.images, id)
	delete(s.torn, id)
	return nil
}

// guestEngine is an engine whose only guest is an HTTP server of the test.
type guestEngine struct {
	processconnect.UnimplementedProcessHandler
	store   *store
	server  *httptest.Server
	saveErr error
	exit    int32 // of each command

	mu sync.Mutex // guards what follows: the server has goroutines of its own

	booted, killed, saved int
	limits                cube.Limits
	ran                   []string
	users                 []string
	openAtSave            int // connections that we still had
	conns                 map[*tracked]bool
}

type tracked struct {
	net.Conn
	e *guestEngine
}

func (c *tracked) Close() error {
	c.e.mu.Lock()
	delete(c.e.conns, c)
	c.e.mu.Unlock()
	return c.Conn.Close()
}

func newGuestEngine(t *testing.T, s *store) *guestEngine {
	e := &guestEngine{store: s, conns: map[*tracked]bool{}}
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(e))
	e.server = httptest.NewServer(mux)
	t.Cleanup(e.server.Close)
	return e
}

func (e *guestEngine) Start(_ context.Context, req *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ran = append(e.ran, strings.Join(req.Msg.Process.Args, " "))
	e.users = append(e.users, req.Header().Get("Authorization"))
	said := &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: []byte("no such thing")}}
	end := &process.ProcessEvent_EndEvent{ExitCode: e.exit, Exited: true, Status: fmt.Sprintf("exit status %d", e.exit)}
	return errors.Join(
		stream.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: said}}}),
		stream.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}}}))
}

func (e *guestEngine) Boot(_ context.Context, spec cube.BootSpec) (cube.Sandbox, error) {
	e.booted++
	e.limits = spec.Limits
	return cube.Sandbox{ID: spec.ID}, nil
}

func (e *guestEngine) Save(_ context.Context, _ cube.SandboxID, id cube.ImageID) (cube.Image, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.openAtSave = len(e.conns)
	if e.saveErr != nil {
		return cube.Image{}, e.saveErr
	}
	e.saved++
	e.store.images[id] = cube.Image{ID: id, Kind: cube.KindTemplate}
	return e.store.images[id], nil
}

func (e *guestEngine) Kill(ctx context.Context, _ cube.SandboxID) error {
	e.killed++
	return ctx.Err()
}

func (e *guestEngine) Dial(ctx context.Context, _ cube.SandboxID, _ cube.Generation, _ uint16) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", e.server.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	c := &tracked{conn, e}
	e.mu.Lock()
	e.conns[c] = true
	e.mu.Unlock()
	return c, nil
}

func setUp(t *testing.T) (*store, *guestEngine, Options) {
	baseRootfs(t)
	s := &store{images: map[cube.ImageID]cube.Image{}}
	e := newGuestEngine(t, s)
	return s, e, Options{
		Definition: "../templates/base", CacheDir: "/var/cache/cube", AgentDigest: "a", EngineVersion: "v",
		Images: s, Engine: e,
	}
}

func TestBuildBootsWarmsAndSavesOnce(t *testing.T) {
	_, e, o := setUp(t)
	image, err := Build(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !image.ID.IsTemplate() || e.booted != 1 || e.saved != 1 || e.killed != 1 || e.limits != cube.DefaultLimits() {
		t.Errorf("got %+v after %d boots, %d saves, %d kills with %+v", image, e.booted, e.saved, e.killed, e.limits)
	}
	if len(e.ran) == 0 || e.ran[0] != "-c /bin/true" || e.users[0] != "Basic dXNlcjo=" {
		t.Errorf("warmed with %q as %q", e.ran, e.users)
	}
	if e.openAtSave != 0 {
		t.Errorf("%d connections of ours are in the image", e.openAtSave)
	}
	again, err := Build(context.Background(), o)
	if err != nil || !reflect.DeepEqual(again, image) || e.booted != 1 {
		t.Errorf("the second time: %+v, %v, %d boots", again, err, e.booted)
	}
	o.EngineVersion = "w"
	other, err := Build(context.Background(), o)
	if err != nil || other.ID == image.ID || e.booted != 2 {
		t.Errorf("for another engine: %+v, %v, %d boots", other, err, e.booted)
	}
}

func TestATemplateThatAPowerCutHasTornIsBuiltAgainUnlessItWasDurable(t *testing.T) {
	s, e, o := setUp(t)
	image, err := Build(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, durable := range []bool{true, false} {
		delete(s.images, image.ID)
		s.torn = map[cube.ImageID]bool{image.ID: durable}
		e.saved = 0
		again, err := Build(context.Background(), o)
		if durable && (!errors.Is(err, cube.ErrCorrupt) || e.saved != 0 || len(s.torn) != 1) {
			t.Errorf("durable: got %v after %d saves, want ErrCorrupt and it to stay", err, e.saved)
		}
		if !durable && (err != nil || again.ID != image.ID || e.saved != 1 || len(s.torn) != 0) {
			t.Errorf("not durable: got %v, %v after %d saves, want it built again", again, err, e.saved)
		}
	}
}

func TestFailedBuildLeavesNoSandbox(t *testing.T) {
	for name, spoil := range map[string]func(*guestEngine){
		"save": func(e *guestEngine) { e.saveErr = cube.ErrNoSpace },
		"warm": func(e *guestEngine) { e.exit = 127 },
		"dial": func(e *guestEngine) { e.server.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s, e, o := setUp(t)
			spoil(e)
			_, err := Build(context.Background(), o)
			if err == nil || e.booted != 1 || e.killed != 1 || len(s.images) != 0 {
				t.Errorf("got %v, %d boots, %d kills, images %v", err, e.booted, e.killed, s.images)
			}
			if name == "warm" && (!strings.Contains(err.Error(), "no such thing") || !strings.Contains(err.Error(), "template.toml:")) {
				t.Errorf("got %v, want what was said and the line", err)
			}
		})
	}
}

func TestCancelledBuildStillEndsItsSandbox(t *testing.T) {
	_, e, o := setUp(t)
	ctx, cancel := context.WithCancel(context.Background())
	o.Engine = cancelAtSave{e, cancel}
	if _, err := Build(ctx, o); !errors.Is(err, context.Canceled) || e.killed != 1 {
		t.Errorf("got %v and %d kills", err, e.killed)
	}
}

type cancelAtSave struct {
	*guestEngine
	cancel context.CancelFunc
}

func (e cancelAtSave) Save(ctx context.Context, _ cube.SandboxID, _ cube.ImageID) (cube.Image, error) {
	e.cancel()
	return cube.Image{}, ctx.Err()
}

func TestRootfsThatHasChangedInTheCacheIsRefused(t *testing.T) {
	s, e, o := setUp(t)
	s.digest = strings.Repeat("0", 64)
	_, err := Build(context.Background(), o)
	if !errors.Is(err, cube.ErrCorrupt) || e.booted != 0 || !strings.Contains(err.Error(), filepath.Join("rootfs")) {
		t.Errorf("got %v after %d boots", err, e.booted)
	}
}

func TestImageIDFollowsFromAllThatIsInTheImage(t *testing.T) {
	def := &Definition{User: User{"user", 1000}, Limits: cube.DefaultLimits(), Warm: []string{"true"}}
	seen := map[cube.ImageID]bool{imageID(def, "r", "a", "e"): true}
	for _, id := range []cube.ImageID{
		imageID(def, "R", "a", "e"), imageID(def, "r", "A", "e"), imageID(def, "r", "a", "E"),
		imageID(&Definition{User: def.User, Limits: cube.Limits{CPUs: 1}, Warm: def.Warm}, "r", "a", "e"),
		imageID(&Definition{User: def.User, Limits: def.Limits}, "r", "a", "e"),
	} {
		if seen[id] {
			t.Errorf("%s stands for two contents", id)
		}
		seen[id] = true
	}
}
