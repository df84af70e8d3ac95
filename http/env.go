package http

import (
	"regexp"
	"strings"
)

// Bounds of variables in CubeSandbox's dialect, in bytes.
const (
	maxEnvName  = 256
	maxEnvValue = 4096
)

// maxEnvString bounds "NAME=VALUE" with its end, in bytes: no program can be started
// with a longer one.
const maxEnvString = 128 << 10

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// forbidden are variables that change how programs are loaded. CubeSandbox refuses
// them, E2B does not.
var forbidden = words(`BASH_ENV ENV LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH LD_ORIGIN_PATH DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH
	GCONV_PATH PATH PYTHONPATH NODE_PATH JAVA_TOOL_OPTIONS _JAVA_OPTIONS GEM_PATH RUBYOPT RUBYLIB PERL5LIB PERLLIB CLASSPATH IFS`)

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// env checks the variables of a sandbox.
func env(c *call, given *map[string]string) (map[string]string, error) {
	if given == nil {
		return nil, nil
	}
	check := checkCubes
	if c.e2b() {
		check = checkE2Bs
	}
	for name, value := range *given {
		if err := check(name, value); err != nil {
			return nil, err
		}
	}
	return *given, nil
}

// checkE2Bs lets through what a program can be started with. Values of several lines,
// such as keys, are usual.
func checkE2Bs(name, value string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return invalid("validation error: envVars: the name %.64q: want one without = and NUL", name)
	case strings.Contains(value, "\x00"):
		return invalid("validation error: envVars: the value of %.64s has a NUL", name)
	case len(name)+len(value)+2 > maxEnvString:
		return invalid("validation error: envVars: %.64s has %d bytes; at most %d are allowed", name, len(name)+len(value), maxEnvString-2)
	}
	return nil
}

func checkCubes(name, value string) error {
	switch {
	case len(name) > maxEnvName || !envName.MatchString(name):
		return invalid("validation error: envVars: the name %.64q: want letters, digits and _, up to %d, no digit first", name, maxEnvName)
	case forbidden[strings.ToUpper(name)]:
		return invalid("validation error: envVars: %s may not be set for a whole sandbox: it changes how programs are loaded; set it for a command", name)
	case len(value) > maxEnvValue:
		return invalid("validation error: envVars: the value of %s has %d bytes; at most %d are allowed", name, len(value), maxEnvValue)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return invalid("validation error: envVars: the value of %s has control characters; of those only tabs are allowed", name)
	}
	return nil
}
