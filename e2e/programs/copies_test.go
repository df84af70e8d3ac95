package programs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	cube "cubesandbox"
	"cubesandbox/client"
	"cubesandbox/e2e/lab"
)

// drawers are the programs that say what they draw next, by port. Bash answers by FIFOs.
const drawers = `cd ` + home + ` && mkfifo ask answer
nohup python3 draw.py 8001 >log1 2>&1 &
nohup python3 draw.py 8002 told >log2 2>&1 &
nohup node draw.js 8003 >log3 2>&1 &
cat >draw.sh <<'X'
: $RANDOM; while read -r x <ask; do echo "{\"RANDOM\":\"$RANDOM $RANDOM\",\"SRANDOM\":\"$SRANDOM\",\"\$\$\":\"$$\"}" >answer; done
X
nohup bash draw.sh >log4 2>&1 &
until curl -sf 127.0.0.1:8001 && curl -sf 127.0.0.1:8002 && curl -sf 127.0.0.1:8003; do sleep 0.05; done >/dev/null`

// TestWhatCopiesShareIsWhatTheDocumentSays: two clones of one instant, in which the same
// programs were at work. What docs/clones.md lists as the same is the same, what it lists
// as different differs, and its recipes help.
func TestWhatCopiesShareIsWhatTheDocumentSays(t *testing.T) {
	s.Guard(t)
	ctx := t.Context()
	source, err := s.API.Create(ctx, client.NewSandbox{Template: template, Timeout: cube.NeverTimeout})
	if err != nil {
		t.Fatal(err)
	}
	if err := bring(ctx, source); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Shell(ctx, s.API, source, drawers); err != nil {
		t.Fatal(err)
	}
	made, err := s.API.Clone(ctx, source.ID, client.Cloning{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		program      string
		port         uint16
		same, differ string // comma between
		heard        string // how often it has been told in a copy
	}{
		{"python", 8001, "random,numpy.random,a numpy Generator,a random.Random,ssl.RAND_bytes,tempfile,hash,pid",
			"os.urandom,getrandom,an open /dev/urandom,secrets,uuid4,SystemRandom,a new Generator,a new Random", "0"},
		{"python that was told", 8002, "tempfile,hash,pid",
			"random,numpy.random,a numpy Generator,a random.Random,ssl.RAND_bytes,os.urandom,secrets", "1"},
		{"node", 8003, "Math.random,crypto.randomBytes,crypto.randomUUID,crypto.randomInt,getRandomValues,pid,seen", "/dev/urandom", "1"},
		{"bash", 0, "RANDOM,$$", "SRANDOM", ""},
	} {
		var drawn [2]map[string]string
		for i, b := range made {
			if drawn[i], err = drawnBy(ctx, b, c.port); err != nil {
				t.Fatalf("%s in clone %d: %v", c.program, i, err)
			}
			if drawn[i]["heard"] != c.heard {
				t.Errorf("%s has heard %q times that it is a copy, want %q", c.program, drawn[i]["heard"], c.heard)
			}
		}
		for what := range strings.SplitSeq(c.same, ",") {
			if a, b := drawn[0][what], drawn[1][what]; a == "" || a != b {
				t.Errorf("%s, %s: %q and %q; the document says that they are the same", c.program, what, a, b)
			}
		}
		for what := range strings.SplitSeq(c.differ, ",") {
			if a, b := drawn[0][what], drawn[1][what]; a == "" || b == "" || a == b {
				t.Errorf("%s, %s: %q and %q; the document says that they differ", c.program, what, a, b)
			}
		}
		if c.program == "node" && drawn[0]["seen"] != "1" {
			t.Errorf("node has not seen that the generation file was written: %v", drawn[0])
		}
	}
}

// drawnBy asks a program what it draws.
func drawnBy(ctx context.Context, b client.Sandbox, port uint16) (out map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if port == 0 {
		text, err := lab.Shell(ctx, s.API, b, "cd "+home+" && echo x >ask && cat answer")
		if err == nil {
			err = json.Unmarshal([]byte(text), &out)
		}
		return out, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.API.PortURL(b.ID, port), nil)
	if err != nil {
		return nil, err
	}
	r.Close = true
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("port %d: %s", port, res.Status)
	}
	return out, json.NewDecoder(res.Body).Decode(&out)
}
