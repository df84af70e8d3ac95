package template

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// readSources reads the apt sources of this machine, or only the file that
// CUBE_APT_SOURCES names. Disabled sources, source packages, CDs and other
// architectures are left out.
func readSources() ([]source, error) {
	if file := os.Getenv("CUBE_APT_SOURCES"); file != "" {
		return readSourceFiles([]string{file})
	}
	return readSourcesUnder("/etc/apt")
}

func readSourcesUnder(etc string) ([]source, error) {
	files := []string{filepath.Join(etc, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		found, err := filepath.Glob(filepath.Join(etc, "sources.list.d", pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	slices.Sort(files[1:])
	return readSourceFiles(files)
}

func readSourceFiles(files []string) ([]source, error) {
	var all []source
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) && filepath.Base(file) == "sources.list" {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read apt sources: %w", err)
		}
		parse := parseOneLine
		if isDeb822(file, string(text)) {
			parse = parseDeb822
		}
		found, err := parse(file, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func isDeb822(file, text string) bool {
	if strings.HasSuffix(file, ".list") {
		return false
	}
	return strings.HasSuffix(file, ".sources") || strings.Contains("\n"+strings.ToLower(text), "\ntypes:")
}

// parseOneLine reads "deb [options] uri suite components…" lines.
func parseOneLine(file, text string) ([]source, error) {
	var all []source
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		kind, rest, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")), " ")
		if kind != "deb" {
			continue
		}
		s := source{where: fmt.Sprintf("%s:%d", file, i+1)}
		rest = strings.TrimSpace(rest)
		if options, ok := strings.CutPrefix(rest, "["); ok {
			if options, rest, ok = strings.Cut(options, "]"); !ok {
				return nil, fmt.Errorf("%s: options without a closing ']'; correct this line", s.where)
			}
			s.options(options)
		}
		words := strings.Fields(rest)
		if len(words) < 2 {
			return nil, fmt.Errorf("%s: want deb, an address and a suite; correct this line", s.where)
		}
		s.uris, s.suites, s.components = words[:1], words[1:2], words[2:]
		if s.usable() {
			all = append(all, s)
		}
	}
	return all, nil
}

func (s *source) options(text string) {
	for _, option := range strings.Fields(text) {
		name, value, _ := strings.Cut(option, "=")
		switch strings.ToLower(name) {
		case "signed-by":
			s.signedBy = value
		case "arch":
			s.architectures = strings.Split(value, ",")
		}
	}
}

// parseDeb822 reads stanzas of "Field: value" lines.
func parseDeb822(file, text string) ([]source, error) {
	var all []source
	fields, name, began := map[string]string{}, "", 0
	finish := func() error {
		defer func() { fields, name = map[string]string{}, "" }()
		if len(fields) == 0 {
			return nil
		}
		s := source{
			uris:          strings.Fields(fields["uris"]),
			suites:        strings.Fields(fields["suites"]),
			components:    strings.Fields(fields["components"]),
			architectures: strings.Fields(fields["architectures"]),
			signedBy:      fields["signed-by"],
			where:         fmt.Sprintf("%s:%d", file, began),
		}
		if len(s.uris) == 0 || len(s.suites) == 0 {
			return fmt.Errorf("%s: a source without URIs or Suites; correct it", s.where)
		}
		enabled := !slices.Contains([]string{"no", "false", "off", "0", "without", "disable"}, strings.ToLower(fields["enabled"]))
		if enabled && slices.Contains(strings.Fields(fields["types"]), "deb") && s.usable() {
			all = append(all, s)
		}
		return nil
	}
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			if err := finish(); err != nil {
				return nil, err
			}
		case line[0] == ' ' || line[0] == '\t':
			if name == "" {
				return nil, fmt.Errorf("%s:%d: a continuation of nothing; correct this line", file, i+1)
			}
			fields[name] += "\n" + line
		default:
			field, value, ok := strings.Cut(line, ":")
			if !ok {
				return nil, fmt.Errorf("%s:%d: want \"Field: value\"; correct this line", file, i+1)
			}
			if len(fields) == 0 {
				began = i + 1
			}
			name = strings.ToLower(strings.TrimSpace(field))
			fields[name] = strings.TrimSpace(value)
		}
	}
	if err := finish(); err != nil {
		return nil, err
	}
	return all, nil
}

// usable leaves out CDs and what is for other architectures only.
func (s *source) usable() bool {
	s.uris = slices.DeleteFunc(s.uris, func(u string) bool { return strings.HasPrefix(u, "cdrom:") })
	return len(s.uris) > 0 && (len(s.architectures) == 0 || slices.Contains(s.architectures, debianArch()))
}

// debianArch is Debian's name for the architecture that we run on; the two that
// the product supports have the same name in Go.
func debianArch() string { return runtime.GOARCH }
