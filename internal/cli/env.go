package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"cubesandbox/internal/secret"
)

const envHelp = `Print what E2B's and CubeSandbox's clients need to know, for a shell:

  eval "$(cube env)"

SSL_CERT_FILE and REQUESTS_CA_BUNDLE are comments, since they replace the certificates of the
system: with one of them a program trusts our data plane over TLS, and nobody else.`

// variable is one of the environment. One that is off is printed as a comment, and
// is not in the JSON form.
type variable struct {
	name, value string
	off         bool
}

// noKey is what clients get where the server asks for no key: they insist on one.
var noKey = "e2b_" + strings.Repeat("0", 40)

func (a *app) envCommand() *cobra.Command {
	return &cobra.Command{
		Use: "env", Short: "Print the environment that clients need", Long: envHelp, Args: cobra.NoArgs,
		Example: "  eval \"$(cube env)\"\n  cube env --json",
		RunE: func(*cobra.Command, []string) error {
			s, err := a.server()
			if err != nil {
				return err
			}
			vars, err := s.variables()
			if err != nil {
				return err
			}
			on := map[string]string{}
			for _, v := range vars {
				if !v.off {
					on[v.name] = v.value
				}
			}
			return a.print(on, func(w io.Writer) error { return exports(w, vars) })
		},
	}
}

// variables are those for clients of a server.
func (s server) variables() ([]variable, error) {
	data, err := url.Parse(s.Sandbox)
	if err != nil || data.Host == "" {
		return nil, fmt.Errorf("%w: --sandbox-url %q: want http://HOST:PORT", errUsage, s.Sandbox)
	}
	port := data.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[data.Scheme]
	}
	if s.Domain == "" {
		s.Domain = net.JoinHostPort("localhost", port)
	}
	key, err := s.keyForClients()
	if err != nil {
		return nil, err
	}
	vars := []variable{
		{name: "CUBE_API_URL", value: s.API}, {name: "CUBE_API_KEY", value: key}, {name: "CUBE_TEMPLATE_ID", value: baseTemplate},
		{name: "CUBE_PROXY_NODE_IP", value: data.Hostname()}, {name: "CUBE_PROXY_PORT_HTTP", value: port},
		{name: "CUBE_SANDBOX_DOMAIN", value: s.Domain},
		{name: "E2B_API_URL", value: s.API}, {name: "E2B_SANDBOX_URL", value: s.Sandbox}, {name: "E2B_API_KEY", value: key},
		{name: "E2B_DOMAIN", value: s.Domain},
	}
	if s.CA == "" && s.StateDir != "" {
		s.CA = filepath.Join(s.StateDir, "ca", "ca.pem")
	}
	if s.CA != "" {
		vars = append(vars, variable{name: "CUBE_CA_FILE", value: s.CA}, variable{name: "NODE_EXTRA_CA_CERTS", value: s.CA},
			variable{name: "SSL_CERT_FILE", value: s.CA, off: true}, variable{name: "REQUESTS_CA_BUNDLE", value: s.CA, off: true})
	}
	return vars, nil
}

// keyForClients is a key that clients accept. To print none would only move the error
// to where it is harder to understand.
func (s server) keyForClients() (string, error) {
	if s.NoAuth {
		return noKey, nil
	}
	if key := os.Getenv("CUBE_API_KEY"); key != "" {
		return key, nil
	}
	if s.StateDir == "" {
		return "", errors.New("the key of a server elsewhere is not known here: set CUBE_API_KEY")
	}
	return secret.Read(s.StateDir)
}

func exports(w io.Writer, vars []variable) error {
	for _, v := range vars {
		comment := ""
		if v.off {
			comment = "# "
		}
		if _, err := fmt.Fprintf(w, "%sexport %s=%s\n", comment, v.name, quoted(v.value)); err != nil {
			return err
		}
	}
	return nil
}

// quoted is s as one word of a shell.
func quoted(s string) string {
	plain := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+=,", r) {
			return -1
		}
		return r
	}
	if s != "" && strings.Map(plain, s) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
