package lab

import (
	"flag"
	"strings"
)

// Shortly has make test run the named tests of a package alone: the others have no
// short form, or one that says little, and are run by make check. Who names tests with
// -run gets those. Call it in TestMain.
func Shortly(tests ...string) error {
	flag.Parse()
	if f := flag.Lookup("test.run"); Form() == "" && f != nil && f.Value.String() == "" {
		return f.Value.Set("^(" + strings.Join(tests, "|") + ")$")
	}
	return nil
}
