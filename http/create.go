package http

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"

	cube "cubesandbox"
	"cubesandbox/http/openapi"
)

// maxMaskHost bounds network.maskRequestHost, in bytes.
const maxMaskHost = 512

// Timeouts where nothing is said, in each version of E2B.
const (
	timeoutE2Bv1 = 15 * time.Second
	timeoutE2Bv2 = 300 * time.Second
)

// never is CubeSandbox's word for it among seconds.
const never = -1

// cubeUser is who runs what CubeSandbox's clients name no user for.
const cubeUser = "root"

// sweep is how long a sandbox with an idle timeout of 0 is let be.
const sweep = 5 * time.Second

func (a *API) create(c *call) (answer, error) {
	n, err := a.parseCreate(c)
	if err != nil {
		return answer{}, err
	}
	if n.Key, err = c.key(); err != nil {
		return answer{}, err
	}
	r, err := a.svc.Create(c.ctx(), n)
	if errors.Is(err, cube.ErrNotFound) && !strings.Contains(err.Error(), "template") && !strings.Contains(err.Error(), "sandbox ") {
		// CubeSandbox's client tells by that word what was not found. It can be the
		// sandbox that the idempotency key made.
		return answer{}, fmt.Errorf("template %s: %w", n.Template, err)
	}
	if err != nil {
		return answer{}, err
	}
	c.sandbox = r.ID
	return answer{status: http.StatusCreated, body: a.sandbox(r)}, nil
}

// parseCreate reads the body of a create.
func (a *API) parseCreate(c *call) (cube.NewSandbox, error) {
	var n cube.NewSandbox
	fields, err := readObject(c.r)
	if err != nil {
		return n, err
	}
	rename(fields, "auto_pause", "autoPause", "auto_resume", "autoResume", "env_vars", "envVars", "envs", "envVars", "distribution_scope", "distributionScope",
		"auto_recover", "autoRecover", "files_fallback", "filesFallback")
	renameIn(fields, "lifecycle", "on_timeout", "onTimeout", "auto_resume", "autoResume")
	renameIn(fields, "network", "allow_public_traffic", "allowPublicTraffic", "allow_out", "allowOut", "deny_out", "denyOut", "mask_request_host", "maskRequestHost")
	network := fields["network"]
	var q openapi.NewSandbox
	if err := into(fields, &q); err != nil {
		return n, err
	}
	if q.TemplateID == "" {
		return n, invalid("validation error: templateID is required: the id or name of a template or snapshot")
	}
	if err := unsupported(q); err != nil {
		return n, err
	}
	n = cube.NewSandbox{Template: q.TemplateID, Clock: cube.ClockIdle, AllowInternet: q.AllowInternetAccess}
	if c.e2b() {
		n.Clock = cube.ClockAbsolute
	} else {
		n.User = cubeUser
	}
	if n.Timeout, err = a.createTimeout(c, q.Timeout); err != nil {
		return n, err
	}
	if n.OnTimeout, n.AutoResume, err = lifecycle(q); err != nil {
		return n, err
	}
	// E2B's first version lets a client do without; everybody else sends the token
	// that the answer gives.
	n.Open = c.e2b() && !c.v2() && q.Secure != nil && !*q.Secure
	if n.Env, err = env(c, q.EnvVars); err != nil {
		return n, err
	}
	if q.Metadata != nil {
		n.Metadata = *q.Metadata
	}
	if q.Mcp != nil {
		n.MCP = fields["mcp"]
	}
	n.AutoRecover, n.FilesFallback = yes(q.AutoRecover), yes(q.FilesFallback)
	return n, a.network(&n, q.Network, network)
}

// unsupported refuses what would be ignored.
func unsupported(q openapi.NewSandbox) error {
	switch {
	case q.VolumeMounts != nil && len(*q.VolumeMounts) > 0:
		return notYetField("volumeMounts")
	case q.Iam != nil && len(*q.Iam) > 0:
		return notYetField("iam")
	case q.AutoPauseMemory != nil && !*q.AutoPauseMemory:
		return notYetField("autoPauseMemory: false")
	case q.DistributionScope != nil && len(*q.DistributionScope) > 0:
		return notYetField("distributionScope")
	}
	if q.Metadata != nil {
		if _, ok := (*q.Metadata)["host-mount"]; ok {
			return notYetField("metadata host-mount")
		}
	}
	return nil
}

func (a *API) createTimeout(c *call, given *int) (time.Duration, error) {
	switch {
	case given != nil && c.e2b() && *given <= 0:
		return 0, invalid("validation error: timeout %d: it must be above 0 seconds", *given)
	case given != nil:
		return a.seconds(c, *given)
	case !c.e2b():
		return a.atMost(cube.NeverTimeout), nil
	case c.v2():
		return a.atMost(timeoutE2Bv2), nil
	default:
		return a.atMost(timeoutE2Bv1), nil
	}
}

// atMost is a default, or the longest timeout if that is shorter.
func (a *API) atMost(d time.Duration) time.Duration {
	if most := a.conf.MaxTimeout; most > 0 && (d == cube.NeverTimeout || d > most) {
		return most
	}
	return d
}

// seconds turns a client's number into a timeout: 0 is the next sweep, -1 never.
func (a *API) seconds(c *call, n int) (time.Duration, error) {
	switch {
	case n == never && !c.e2b() && a.conf.MaxTimeout == 0:
		return cube.NeverTimeout, nil
	case n == never && !c.e2b():
		return 0, invalid("validation error: timeout %d: at most %d seconds are allowed", n, a.longest())
	case n < 0:
		return 0, invalid("validation error: timeout %d: it is in seconds and not negative (CubeSandbox: -1 for never)", n)
	case n == 0 && c.e2b():
		return time.Millisecond, nil
	case n == 0:
		return sweep, nil
	case n > int(maxSeconds) || a.conf.MaxTimeout > 0 && time.Duration(n)*time.Second > a.conf.MaxTimeout:
		return 0, invalid("validation error: timeout %d: at most %d seconds are allowed", n, a.longest())
	}
	return time.Duration(n) * time.Second, nil
}

// maxSeconds is what a duration can hold, with room for adding it to a time.
const maxSeconds = 100 * 365 * 24 * 3600

func (a *API) longest() int {
	if a.conf.MaxTimeout > 0 {
		return int(a.conf.MaxTimeout / time.Second)
	}
	return maxSeconds
}

// lifecycle reads what is to happen in the end, in all its spellings.
func lifecycle(q openapi.NewSandbox) (cube.OnTimeout, bool, error) {
	on := cube.OnTimeoutKill
	if q.AutoPause != nil && *q.AutoPause {
		on = cube.OnTimeoutPause
	}
	auto, err := enabled(q.AutoResume)
	if err != nil {
		return "", false, err
	}
	if l := q.Lifecycle; l != nil {
		if l.OnTimeout != nil {
			on = cube.OnTimeout(*l.OnTimeout)
		}
		if l.AutoResume != nil {
			auto = *l.AutoResume
		}
	}
	if on != cube.OnTimeoutKill && on != cube.OnTimeoutPause {
		return "", false, invalid("validation error: lifecycle.onTimeout %q: want kill or pause", on)
	}
	return on, auto, nil
}

// enabled reads true, or {"enabled": true}.
func enabled(v any) (bool, error) {
	switch v := v.(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	case map[string]any:
		if on, ok := v["enabled"].(bool); ok || v["enabled"] == nil {
			return on, nil
		}
	}
	return false, invalid(`validation error: autoResume: want true, false or {"enabled": true}`)
}

// network reads and checks the policy; what it says about going out is kept for
// the gateway.
func (a *API) network(n *cube.NewSandbox, q *openapi.Network, kept json.RawMessage) error {
	if q == nil {
		return nil
	}
	n.Network = kept
	n.Private = q.AllowPublicTraffic != nil && !*q.AllowPublicTraffic
	if n.Private && n.Open {
		return invalid("You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag.")
	}
	if q.MaskRequestHost != nil {
		if err := maskHost(*q.MaskRequestHost); err != nil {
			return err
		}
	}
	denied := n.AllowInternet != nil && !*n.AllowInternet
	for _, d := range list(q.DenyOut) {
		prefix, err := parseRange(d)
		if err != nil {
			return invalid("validation error: network.denyOut: %.64q: want an address or a range", d)
		}
		denied = denied || prefix == netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	for _, o := range list(q.AllowOut) {
		if _, err := parseRange(o); err != nil && !denied {
			return invalid("When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic.")
		}
	}
	return nil
}

func list(l *[]string) []string {
	if l == nil {
		return nil
	}
	return *l
}

func parseRange(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p, nil
	}
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return ip.Prefix(ip.BitLen())
}

var hostForm = regexp.MustCompile(`^[A-Za-z0-9.-]+(:[0-9]{1,5})?$`)

func maskHost(s string) error {
	plain := strings.ReplaceAll(s, "${PORT}", "1")
	if len(s) > maxMaskHost || !hostForm.MatchString(plain) {
		return invalid("validation error: network.maskRequestHost %.64q: want a host name with a port if need be, up to %d characters, ${PORT} for the port", s, maxMaskHost)
	}
	return nil
}
