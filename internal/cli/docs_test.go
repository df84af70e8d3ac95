package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// eachCommand calls f with every command that does something.
func eachCommand(c *cobra.Command, f func(*cobra.Command)) {
	subs := c.Commands()
	for _, sub := range subs {
		eachCommand(sub, f)
	}
	if len(subs) == 0 && c.Name() != "help" && !c.Hidden {
		f(c)
	}
}

func TestTheDocumentHasAnExampleOfEveryCommandAndEveryStatus(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	shell := examplesOf(string(text))
	n := 0
	eachCommand((&app{}).root(), func(c *cobra.Command) {
		n++
		if !regexp.MustCompile(regexp.QuoteMeta(c.CommandPath()) + `[ )\n]`).MatchString(shell) {
			t.Errorf("docs/cli.md has no example of %s", c.CommandPath())
		}
	})
	if n < 25 {
		t.Errorf("got %d commands", n)
	}
	for _, s := range statuses {
		if !strings.Contains(string(text), fmt.Sprintf("\n| %d |", s.status)) {
			t.Errorf("docs/cli.md does not have status %d", s.status)
		}
	}
}

func TestEveryExampleIsACommandThatIsUnderstood(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range regexp.MustCompile(`cube [a-z][^#\n)>|"$]*`).FindAllString(examplesOf(string(text)), -1) {
		args := strings.Fields(example)[1:]
		root := (&app{}).root()
		c, rest, err := root.Find(args)
		if err != nil || c == root {
			t.Errorf("%s: %v", example, err)
			continue
		}
		if err := c.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", example, err)
		}
	}
}

// examplesOf are the blocks of a document that are for a shell.
func examplesOf(text string) string {
	var out strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		out.WriteString(block[1])
	}
	return out.String()
}
