package template

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"

	cube "cubesandbox"
)

// DefinitionFile is the name of the file that makes a folder a definition.
const DefinitionFile = "template.toml"

// Definition says what a template holds. Load reads and checks it.
type Definition struct {
	// Name is what people call the template: lower-case letters, digits and
	// dashes, as the name of the folder.
	Name string
	// Description is one line for a person.
	Description string
	// Suites are the Debian releases that it can be made from, best first.
	Suites []string
	// Packages are installed with what they depend on, not what they recommend.
	Packages []string
	// Hooks are programs in the folder, run as root on the building machine with
	// the root of the new file system as their argument, in this order. CUBE_USER
	// and CUBE_UID tell them the user.
	Hooks []string
	// Checks are shell commands that must succeed inside the finished, read-only
	// file system, as the user.
	Checks []string
	// Warm are shell commands that run once in the booted sandbox before it is
	// saved, as the user. They must leave no process behind.
	Warm []string
	// User is who processes of the sandbox run as unless they ask for another.
	User User
	// Limits of every sandbox that is made from the template.
	Limits cube.Limits

	dir string
	src []byte
}

// User is the unprivileged user inside. Its home is /home/NAME.
type User struct {
	Name string
	UID  int // 1000 to 59,999
}

// Load reads the definition in the folder dir. Errors name the file, the line
// where there is one, and what to change, and wrap cube.ErrInvalid.
func Load(dir string) (*Definition, error) {
	file := filepath.Join(dir, DefinitionFile)
	src, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such file; a template is a folder with a %s: %w", file, DefinitionFile, cube.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	def := &Definition{dir: dir, src: src, Limits: cube.DefaultLimits(), User: User{Name: "user", UID: 1000}}
	dec := toml.NewDecoder(bytes.NewReader(src))
	dec.DisallowUnknownFields()
	if err := dec.Decode(def); err != nil {
		return nil, decodeError(file, err)
	}
	if err := def.check(); err != nil {
		return nil, err
	}
	return def, nil
}

// Dir is the folder of the definition.
func (d *Definition) Dir() string { return d.dir }

func decodeError(file string, err error) error {
	if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(strict.Errors) > 0 {
		e := strict.Errors[0]
		row, _ := e.Position()
		return fmt.Errorf("%s:%d: unknown key %q; see docs/templates.md for those that there are: %w",
			file, row, keyName(e.Key()), cube.ErrInvalid)
	}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, col := e.Position()
		return fmt.Errorf("%s:%d:%d: %s; correct this line: %w", file, row, col, e.Error(), cube.ErrInvalid)
	}
	return fmt.Errorf("%s: %w: %w", file, err, cube.ErrInvalid)
}

func keyName(key toml.Key) string {
	var b bytes.Buffer
	for i, part := range key {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	return b.String()
}
