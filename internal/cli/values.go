package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	cube "cubesandbox"
)

// timeout is a flag for a time limit: such as 90s, 15m or 2h, a number of seconds,
// or never.
type timeout struct{ time.Duration }

// String implements pflag.Value.
func (t *timeout) String() string {
	switch {
	case t.Duration == 0:
		return ""
	case t.Duration == cube.NeverTimeout:
		return "never"
	}
	return t.Duration.String()
}

// Set implements pflag.Value.
func (t *timeout) Set(s string) error {
	if s == "never" || s == "-1" {
		t.Duration = cube.NeverTimeout
		return nil
	}
	d, err := time.ParseDuration(s)
	if n, nerr := strconv.Atoi(s); nerr == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d <= 0 {
		return fmt.Errorf("want such as 90s, 15m, a number of seconds above 0, or never")
	}
	t.Duration = d
	return nil
}

// Type implements pflag.Value.
func (t *timeout) Type() string { return "duration" }

// pairs makes a map of NAME=VALUE.
func pairs(flag string, given []string) (map[string]string, error) {
	m := map[string]string{}
	for _, s := range given {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%w: --%s %q: want NAME=VALUE", errUsage, flag, s)
		}
		m[name] = value
	}
	return m, nil
}
