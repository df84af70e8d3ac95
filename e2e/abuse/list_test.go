package abuse

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"cubesandbox/client"
	"cubesandbox/e2e/lab"
	"cubesandbox/guest/envdpb/filesystem"
	"cubesandbox/guest/envdpb/filesystem/filesystemconnect"
)

// listed is how many files the folder has: in the long form more than ListDir answers.
func listed() int {
	if lab.Form() == "long" {
		return 60_000
	}
	return 10_000
}

// TestAFolderOfManyFilesIsListedOrRefusedAndTheAgentAnswers: also while it is listed by
// many at once.
func TestAFolderOfManyFilesIsListedOrRefusedAndTheAgentAnswers(t *testing.T) {
	s.Guard(t)
	beside(t)
	b, err := s.API.Create(t.Context(), client.NewSandbox{Template: template})
	noError(t, err, "make a sandbox")
	end := begin(t, b, abuse{as: "user", line: python(fmt.Sprintf(`import os
os.mkdir("/home/user/many")
os.chdir("/home/user/many")
for i in range(%d): os.close(os.open("file%%d" %% i, os.O_CREAT | os.O_WRONLY))`, listed()) + held)})
	defer end()
	g, err := s.API.Guest(b.ID, b.AccessToken)
	noError(t, err, "get to it")
	lister := filesystemconnect.NewFilesystemClient(&http.Client{Transport: g}, "http://"+s.State.Data)
	const many = 4
	ctx, cancel := context.WithTimeout(t.Context(), readyTime)
	defer cancel()
	lists := make(chan error, many)
	for range many {
		go func() {
			got, err := lister.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: "/home/user/many", Depth: 1}))
			if err == nil && len(got.Msg.Entries) != listed() {
				err = fmt.Errorf("%d entries are listed", len(got.Msg.Entries))
			}
			lists <- err
		}()
	}
	if got := look(t, b, ""); got != answers {
		t.Errorf("while it is listed the outcome is %d, want %d", got, answers)
	}
	for range many {
		if err := <-lists; err != nil && connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("got %v, want %d entries, or that there are too many", err, listed())
		} else if err != nil && !strings.Contains(err.Error(), "more than") {
			t.Errorf("got %v, want how many are too many", err)
		}
	}
	noError(t, ask(t.Context(), b), "ask it afterwards")
	g.Run(t.Context(), client.Command{Argv: []string{"/bin/kill", "-9", "1"}, User: "root"}) // ends the program with all
}
