package template

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	cube "cubesandbox"
)

// Find returns the folder of a definition: name itself if it has a slash, else
// the folder of that name under $CUBE_TEMPLATES, ./templates, or the templates
// folder beside the one that the running program is in.
func Find(name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return name, nil
	}
	var tried []string
	for _, parent := range parents() {
		dir := filepath.Join(parent, name)
		if _, err := os.Stat(filepath.Join(dir, DefinitionFile)); err == nil {
			return dir, nil
		}
		tried = append(tried, dir)
	}
	return "", fmt.Errorf("template %q: no definition in %s; give its folder or set CUBE_TEMPLATES: %w",
		name, strings.Join(tried, ", "), cube.ErrNotFound)
}

func parents() []string {
	if dir := os.Getenv("CUBE_TEMPLATES"); dir != "" {
		return []string{dir}
	}
	dirs := []string{"templates"}
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Join(filepath.Dir(filepath.Dir(exe)), "templates"))
	}
	return dirs
}
