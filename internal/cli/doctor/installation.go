package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"cubesandbox/internal/local"
	"cubesandbox/internal/secret"
)

// programTime bounds asking a program something.
const programTime = 5 * time.Second

func programs(ctx context.Context, c Config) Finding {
	const mend = "build them together with make build, or name their directory with --bin-dir or $CUBE_BIN"
	var missing []string
	for _, name := range []string{"cube-sentry", "cube-network", "cube-guest.erofs"} {
		if _, err := os.Stat(filepath.Join(c.BinDir, name)); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fail(fmt.Sprintf("%s has no %s", c.BinDir, strings.Join(missing, ", ")), mend)
	}
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	version, err := exec.CommandContext(ctx, filepath.Join(c.BinDir, "cube-sentry"), "version").Output()
	if err != nil {
		return fail(fmt.Sprintf("cube-sentry in %s does not run: %v", c.BinDir, err), mend)
	}
	return fits(c, ok(fmt.Sprintf("in %s, engine %s", c.BinDir, strings.TrimSpace(string(version)))), mend)
}

// fits compares the agent with the file system that sandboxes get it from.
func fits(c Config, good Finding, mend string) Finding {
	agent, err := os.Stat(filepath.Join(c.BinDir, "cube-guest"))
	if err != nil {
		return good // it is needed for building only
	}
	packed, err := os.Stat(filepath.Join(c.BinDir, "cube-guest.erofs"))
	if err == nil && packed.ModTime().Before(agent.ModTime()) {
		return warn(good.Found+"; cube-guest.erofs is older than cube-guest", mend)
	}
	return good
}

func buildTools(context.Context, Config) Finding {
	var missing []string
	for program, pkg := range map[string]string{"mmdebstrap": "mmdebstrap", "mkfs.erofs": "erofs-utils"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, pkg)
		}
	}
	if len(missing) > 0 {
		return warn("not all there", "templates cannot be built here: apt-get install "+strings.Join(missing, " "))
	}
	return ok("mmdebstrap, mkfs.erofs")
}

func stateDir(_ context.Context, c Config) Finding {
	info, err := os.Stat(c.StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return ok(c.StateDir + " will be made at the first start")
	}
	if err != nil {
		return fail(err.Error(), "run it as the server's user")
	}
	if uid := owner(info); uid != 0 && uid != c.UID {
		return fail(fmt.Sprintf("%s belongs to user %d", c.StateDir, uid), "chown root "+c.StateDir)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fail(fmt.Sprintf("%s has mode %04o: others may write there", c.StateDir, info.Mode().Perm()), "chmod go-w "+c.StateDir)
	}
	// Sentries run as nobody and pass through it to what they are given.
	for dir := filepath.Clean(c.StateDir); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fail(err.Error(), "run it as the server's user")
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fail(fmt.Sprintf("%s has mode %04o: sandboxes, which run as nobody, cannot pass", dir, info.Mode().Perm()), "chmod o+x "+dir)
		}
		if dir == "/" || dir == "." {
			return ok(c.StateDir)
		}
	}
}

func apiKey(_ context.Context, c Config) Finding {
	_, err := secret.Read(c.StateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ok("cube serve will make one at its first start")
	case errors.Is(err, fs.ErrPermission):
		return warn(secret.Path(c.StateDir)+" is not readable for you", "run it as the server's user, or set CUBE_API_KEY")
	case err != nil:
		return fail(err.Error(), "see there")
	}
	return ok(secret.Path(c.StateDir))
}

func template(_ context.Context, c Config) Finding {
	names, err := local.NamesIn(c.StateDir).Names()
	if errors.Is(err, fs.ErrPermission) {
		return warn("not to be seen by you", "run it as the server's user")
	}
	if err != nil {
		return fail(err.Error(), "cube template build base")
	}
	if id, there := names["base"]; there {
		return ok("base is " + string(id))
	}
	return warn("base is not there", "cube template build base")
}

func serving(_ context.Context, c Config) Finding {
	s := c.Server
	switch {
	case !s.Answers && s.Error != "":
		return fail(s.Error, "see serve.log in the run directory; cube serve -d starts it anew")
	case !s.Answers:
		return warn("none answers at "+s.API, "start it with: cube serve -d")
	case s.Version != "" && s.Version != s.Ours:
		return warn(fmt.Sprintf("version %s at %s, and this is %s", s.Version, s.API, s.Ours), "cube serve -d puts this version in its place; sandboxes run on")
	}
	return ok("answers at " + s.API)
}

func apiPort(_ context.Context, c Config) Finding  { return c.port(c.Server.API, "--listen") }
func dataPort(_ context.Context, c Config) Finding { return c.port(c.Server.Data, "--data-listen") }

// port says whether the server has its port, or could.
func (c Config) port(addr, flag string) Finding {
	if c.Server.Elsewhere {
		return ok(addr + " is on another machine")
	}
	if c.Server.Answers {
		return ok(addr + " is the server's")
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fail(err.Error(), "end what uses it (ss -ltnp shows it), or give cube serve another address with "+flag)
	}
	ln.Close()
	return ok(addr + " is free")
}

// names asks as other programs do: by way of the C library, which Go's resolver is not.
func names(ctx context.Context, _ Config) Finding {
	const host = "49983-doctor.localhost"
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	const mend = "clients that need no names: CUBE_PROXY_NODE_IP and E2B_SANDBOX_URL, which `cube env` sets; browsers resolve them themselves; for the rest install libnss-myhostname"
	getent, err := exec.LookPath("getent")
	if err != nil {
		return warn("getent is not there to ask", mend)
	}
	if err := exec.CommandContext(ctx, getent, "ahosts", host).Run(); err != nil {
		return warn("PORT-ID.localhost does not resolve", mend)
	}
	return ok("PORT-ID.localhost resolves")
}
