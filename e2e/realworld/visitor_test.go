package realworld

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	cube "cubesandbox"
	"cubesandbox/e2e/lab"
)

// visitor is a client outside, which sends a server in a sandbox one request after the
// other through the data plane, over connections that are kept. While nothing is rolled
// back, each is answered, rightly and once, and on the connection of the first. It does not
// go back with the server.
type visitor struct {
	url    string
	http   *http.Client
	random *rand.Rand
	stop   context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex // guards the rest
	wrong    error      // what was found first
	answered int        // the number of the last answer
	last     [2]int     // its connection, and its number on it; 0: none yet
	cut      bool       // connections may break: the sandbox goes back
	first    span       // of the next answer, if it is not to follow the last one
}

// span is from where to where a number may be; the last one is 0 for none.
type span struct{ least, most int }

// pace is the time between two requests.
const pace = 4 * time.Millisecond

// visit has a visitor come to a sandbox, until leave. The server has answered his like so
// often before.
func visit(ctx context.Context, id cube.SandboxID, random *rand.Rand, before span) *visitor {
	ctx, stop := context.WithCancel(ctx)
	v := &visitor{
		url: s.API.PortURL(id, servedPort), random: random, stop: stop, done: make(chan struct{}),
		http:  &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: time.Minute},
		first: span{before.least + 1, before.most + 1},
	}
	go v.run(ctx)
	return v
}

func (v *visitor) run(ctx context.Context) {
	defer close(v.done)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			body := make([]byte, v.random.IntN(20_000))
			for i := range body {
				body[i] = byte(v.random.Uint32())
			}
			v.send(context.WithoutCancel(ctx), body)
		}
	}
}

// send sends a request and looks at the answer.
func (v *visitor) send(ctx context.Context, body []byte) {
	v.mu.Lock()
	cut := v.cut
	v.mu.Unlock()
	seq, err := v.post(ctx, body)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		err = v.count(seq)
	} else if cut || v.cut { // before it was sent, or since
		v.first.most++ // it may have been counted
		v.last = [2]int{}
		return
	}
	if err != nil && v.wrong == nil {
		v.wrong = fmt.Errorf("from outside: %w", err)
	}
}

// post returns the connection, the number on it, and the number of all of a visitor's.
func (v *visitor) post(ctx context.Context, body []byte) (seq [3]int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, v.url, bytes.NewReader(body))
	if err != nil {
		return seq, err
	}
	r.Header.Set("X-Client", "visitor")
	res, err := v.http.Do(r)
	if err != nil {
		return seq, err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err != nil {
		return seq, err
	}
	if res.StatusCode != http.StatusOK {
		return seq, fmt.Errorf("%s: %s", res.Status, got)
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(body)); string(got) != want {
		return seq, fmt.Errorf("the digest of %d bytes is answered %q, want %s", len(body), got, want)
	}
	_, err = fmt.Sscan(res.Header.Get("X-Seq"), &seq[0], &seq[1], &seq[2])
	return seq, err
}

// count looks whether an answer is the next one, under mu.
func (v *visitor) count(seq [3]int) error {
	connection, on, number := seq[0], seq[1], seq[2]
	switch follows := number == v.answered+1; {
	case v.first.most > 0 && !(v.cut && follows): // else it has not gone back yet
		if number < v.first.least || number > v.first.most {
			return fmt.Errorf("the first answer is number %d, want %d to %d", number, v.first.least, v.first.most)
		}
		v.first = span{}
	case !follows:
		return fmt.Errorf("after number %d comes the answer number %d", v.answered, number)
	case v.last[0] != 0 && (connection != v.last[0] || on != v.last[1]+1):
		return fmt.Errorf("after request %d of connection %d comes %d of %d", v.last[1], v.last[0], on, connection)
	}
	v.answered, v.last = number, [2]int{connection, on}
	return nil
}

// number is how many of his requests are counted just now.
func (v *visitor) number() (n span, err error) {
	err = v.until(func() bool { n = span{v.answered, v.answered + 1}; return v.first.most == 0 })
	return n, err
}

// until waits until what is so under mu.
func (v *visitor) until(so func() bool) error {
	return lab.Until(time.Minute, "the visitor is answered", func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.wrong != nil || so() {
			return nil
		}
		return fmt.Errorf("the last answer is number %d", v.answered)
	})
}

// goBack has the visitor go on beside f, which takes the server back to a moment when it
// had counted so many of his requests.
func (v *visitor) goBack(f func() error, to span) error {
	// An answer of before is told by its number from one of after.
	if err := v.until(func() bool { return v.first.most == 0 && v.answered > to.most+5 }); err != nil {
		return err
	}
	v.mu.Lock()
	v.cut, v.first = true, span{to.least + 1, to.most + 1}
	v.mu.Unlock()
	err := f()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cut = false
	if v.first.most > 0 {
		v.last = [2]int{}
	}
	return err
}

// leave returns when the last request is answered, and says what was wrong.
func (v *visitor) leave() error {
	v.stop()
	<-v.done
	v.http.CloseIdleConnections()
	if v.wrong == nil && v.answered == 0 {
		v.wrong = errors.New("no request from outside was answered")
	}
	return v.wrong
}
