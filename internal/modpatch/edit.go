package modpatch

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"go/format"
	"strings"
)

// Edit is what is changed in one file of the module, as an edit file says it:
//
//	file PATH SHA-256
//	# why
//	in DECLARATION
//	after LINE
//	|what comes there
//
// PATH is that of the file in the module, SHA-256 that of its text before. DECLARATION is
// the beginning of one line; places are looked for from there to the next line that begins
// with a closing bracket. LINE is one line without the white space around it, and must
// occur there once. The lines that begin with | come after it, before it, or with
// "instead of" in its place, where none removes it. The result is formatted by gofmt.
type Edit struct {
	// Name of the edit file, which errors begin with.
	Name string
	// Path of the file, slash-separated, and what it must be before: a SHA-256 in hex.
	Path, Sum string

	changes []change
}

type place int

const (
	after place = iota
	before
	instead
)

var places = map[string]place{"after": after, "before": before, "instead of": instead}

// change is one place and what comes there.
type change struct {
	edit  string
	line  int // of the edit file
	in    string
	place place
	at    string
	text  []string
}

// ParseEdit reads an edit file. Errors say which line of it is meant.
func ParseEdit(name string, text []byte) (*Edit, error) {
	e := &Edit{Name: name}
	if err := e.parse(text); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return e, nil
}

func (e *Edit) parse(text []byte) error {
	in := ""
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(nil, 1<<20)
	for n := 1; s.Scan(); n++ {
		if err := e.parseLine(s.Text(), n, &in); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	if len(e.changes) == 0 {
		return errors.New("it changes nothing")
	}
	for _, c := range e.changes {
		if c.place != instead && len(c.text) == 0 {
			return fmt.Errorf("line %d: nothing comes there", c.line)
		}
	}
	return nil
}

func (e *Edit) parseLine(line string, n int, in *string) error {
	if text, ok := strings.CutPrefix(line, "|"); ok {
		if len(e.changes) == 0 || e.changes[len(e.changes)-1].in != *in {
			return errors.New("text for no place: write after, before or instead of above it")
		}
		c := &e.changes[len(e.changes)-1]
		c.text = append(c.text, text)
		return nil
	}
	if line == "" || strings.HasPrefix(line, "#") {
		return nil
	}
	if e.Path == "" {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "file" || len(f[2]) != hex.EncodedLen(sha256.Size) {
			return fmt.Errorf("want \"file PATH SHA-256\" first, got %q", line)
		}
		e.Path, e.Sum = f[1], f[2]
		return nil
	}
	if decl, ok := strings.CutPrefix(line, "in "); ok {
		*in = decl
		return nil
	}
	for word, p := range places {
		at, ok := strings.CutPrefix(line, word+" ")
		if !ok {
			continue
		}
		if *in == "" {
			return errors.New("no declaration to look in: write in above it")
		}
		e.changes = append(e.changes, change{edit: e.Name, line: n, in: *in, place: p, at: strings.TrimSpace(at)})
		return nil
	}
	return fmt.Errorf("%q is no line of an edit file", line)
}

// Apply returns the text of the file with the changes of all edits, which are all of this
// file. Each is applied to the text as it is, so that none has to know of another; what two
// put at the same place comes in their order. It fails where the file is another than an
// edit was written for, where a place is not there or there more than once, and where two
// replace the same line.
func Apply(text []byte, edits ...*Edit) ([]byte, error) {
	sum := fmt.Sprintf("%x", sha256.Sum256(text))
	lines := strings.Split(string(text), "\n")
	l := layout{inserts: map[int][2][]string{}, replaced: map[int][]string{}}
	var errs []error
	for _, e := range edits {
		if e.Sum != sum {
			errs = append(errs, &ChangedError{Edit: e.Name, Path: e.Path, Sum: sum})
			continue
		}
		for _, c := range e.changes {
			if err := l.add(c, lines); err != nil {
				errs = append(errs, fmt.Errorf("%s: line %d: %w", c.edit, c.line, err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	result := []byte(strings.Join(l.apply(lines), "\n"))
	if !strings.HasSuffix(edits[0].Path, ".go") {
		return result, nil
	}
	formatted, err := format.Source(result)
	if err != nil {
		return nil, fmt.Errorf("%s: %s is no Go any more: %w", edits[0].Name, edits[0].Path, err)
	}
	return formatted, nil
}

// layout is what comes where, by line of the original, so that no change moves the place
// of another.
type layout struct {
	inserts  map[int][2][]string // before, after
	replaced map[int][]string
}

func (l layout) add(c change, lines []string) error {
	at, err := c.find(lines)
	if err != nil {
		return err
	}
	ins := l.inserts[at]
	switch c.place {
	case before:
		ins[0] = append(ins[0], c.text...)
	case after:
		ins[1] = append(ins[1], c.text...)
	case instead:
		if _, twice := l.replaced[at]; twice {
			return fmt.Errorf("%q is replaced twice", c.at)
		}
		l.replaced[at] = c.text
	}
	l.inserts[at] = ins
	return nil
}

func (l layout) apply(lines []string) []string {
	var out []string
	for i, line := range lines {
		out = append(out, l.inserts[i][0]...)
		if text, ok := l.replaced[i]; ok {
			out = append(out, text...)
		} else {
			out = append(out, line)
		}
		out = append(out, l.inserts[i][1]...)
	}
	return out
}

// find returns the index of the line that is meant.
func (c change) find(lines []string) (int, error) {
	start := -1
	for i, l := range lines {
		if !strings.HasPrefix(l, c.in) {
			continue
		}
		if start >= 0 {
			return 0, fmt.Errorf("%q begins two declarations", c.in)
		}
		start = i
	}
	if start < 0 {
		return 0, fmt.Errorf("no declaration begins with %q", c.in)
	}
	found := -1
	for i := start; i < len(lines); i++ {
		if strings.TrimSpace(lines[i]) == c.at {
			if found >= 0 {
				return 0, fmt.Errorf("%q has the line %q twice", c.in, c.at)
			}
			found = i
		}
		if i > start && ends(lines[i]) {
			break
		}
	}
	if found < 0 {
		return 0, fmt.Errorf("%q has no line %q", c.in, c.at)
	}
	return found, nil
}

// ends reports whether a declaration ends with this line.
func ends(line string) bool {
	return strings.HasPrefix(line, "}") || strings.HasPrefix(line, ")")
}

// ChangedError says that a file of the module is not the one that an edit was written for.
type ChangedError struct {
	Edit, Path, Sum string // Sum is what the file has now
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s: %s is not the file that this was written for. Read what has changed in it, make this right, and write into its line \"file\": %s", e.Edit, e.Path, e.Sum)
}
