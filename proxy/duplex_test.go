package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// over2 is a client that speaks HTTP/2 without TLS over one connection.
func over2(t *testing.T) *http.Client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &protocols, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// TestGRPCGoesOverHTTP2AllTheWay: with trailers behind an answer, trailers instead of
// one, and requests that stream. gRPC-Web is made for HTTP/1.1 and stays there.
func TestGRPCGoesOverHTTP2AllTheWay(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 50051, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		h.Set("Seen", fmt.Sprintf("%s te=%s", r.Proto, r.Header.Get("Te")))
		if r.URL.Path == "/none" {
			h.Set("Grpc-Status", "5") // with the headers: no body follows
			return
		}
		h.Set("Trailer", "Grpc-Status")
		ctl := http.NewResponseController(rw)
		ctl.EnableFullDuplex()
		rw.WriteHeader(200)
		ctl.Flush()
		in := bufio.NewReader(r.Body)
		for line, err := in.ReadString('\n'); err == nil; line, err = in.ReadString('\n') {
			io.WriteString(rw, "got "+line)
			ctl.Flush()
		}
		h.Set("Grpc-Status", "0")
		h.Set(http.TrailerPrefix+"Grpc-Message", "fine")
	}))
	c := over2(t)
	for kind, seen := range map[string]string{"application/grpc": "HTTP/2.0 te=trailers", "application/grpc+proto": "HTTP/2.0 te=trailers", "application/grpc-web+proto": "HTTP/1.1 te="} {
		body, say := io.Pipe()
		r := w.request(http.MethodPost, name(id, 50051), "/pkg.Service/Talk", body, "Content-Type", kind, "Te", "trailers")
		resp, err := c.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		out := bufio.NewReader(resp.Body)
		for i := range 3 {
			fmt.Fprintf(say, "%d\n", i)
			if line, err := out.ReadString('\n'); err != nil || line != fmt.Sprintf("got %d\n", i) {
				t.Fatalf("%s: got %q (%v)", kind, line, err)
			}
		}
		say.Close()
		if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
			t.Errorf("%s: got %q (%v)", kind, rest, err)
		}
		resp.Body.Close()
		if !strings.HasPrefix(resp.Header.Get("Seen"), seen) || resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("Grpc-Message") != "fine" {
			t.Errorf("%s: the guest saw %q; trailers %v", kind, resp.Header.Get("Seen"), resp.Trailer)
		}
	}
	resp, err := c.Do(w.request(http.MethodPost, name(id, 50051), "/none", strings.NewReader("x"), "Content-Type", "application/grpc"))
	if err != nil || resp.Header.Get("Grpc-Status") != "5" {
		t.Errorf("trailers only: %v (%v)", resp, err)
	}
	resp.Body.Close()
	resp, err = c.Do(w.request(http.MethodPost, name(id, 50052), "/none", strings.NewReader("x"), "Content-Type", "application/grpc"))
	if err != nil || resp.StatusCode != 502 {
		t.Errorf("closed port: %v (%v)", resp, err)
	}
	resp.Body.Close()
}

// TestAClientThatGoesIsNoticedByTheGuestAtOnce: as a closed connection, also where the
// client only resets a stream of HTTP/2, or is in the middle of an upload.
func TestAClientThatGoesIsNoticedByTheGuestAtOnce(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	gone := make(chan struct{}, 1)
	w.serve(id, 1, 80, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.NewResponseController(rw).EnableFullDuplex()
		fmt.Fprintln(rw, "first")
		rw.(http.Flusher).Flush()
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	resp, err := over2(t).Do(w.request(http.MethodGet, name(id, 80), "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close() // resets the stream; the connection stays
	<-gone
	c := w.dialPlain()
	rawGet(t, c, name(id, 80), "1.1")
	c.Close()
	<-gone
	c = w.dialPlain()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 10\r\n\r\nhalf", name(id, 80))
	if _, err := io.ReadFull(c, make([]byte, 20)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	<-gone
	eventually(t, "none of them counts", func() bool { return w.touched() == 0 })
}

// TestARequestsTrailersPass: in HTTP/1.1 and HTTP/2.
func TestARequestsTrailersPass(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	got := make(chan string, 1)
	w.serve(id, 1, 80, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		got <- r.Trailer.Get("X-Sum")
	}))
	for _, c := range []*http.Client{client1, over2(t)} {
		r := w.request(http.MethodPost, name(id, 80), "/", struct{ io.Reader }{strings.NewReader("x")})
		r.Trailer = http.Header{"X-Sum": {"7"}}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if sum := <-got; sum != "7" {
			t.Errorf("%s: the guest got %q", resp.Proto, sum)
		}
	}
}

// TestTheGuestDecidesWhetherABodyIsSent: "100 Continue" is its word, not ours.
func TestTheGuestDecidesWhetherABodyIsSent(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		rw.Header().Set("Link", "</style.css>; rel=preload")
		rw.WriteHeader(http.StatusEarlyHints)
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(rw, "%d bytes", len(b))
	}))
	ask := func(path string) (*bufio.Reader, net.Conn) {
		c := w.dialPlain()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", path, name(id, 80))
		return bufio.NewReader(c), c
	}
	r, _ := ask("/no")
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 403 {
		t.Errorf("refused: %v (%v)", resp, err)
	}
	r, c := ask("/yes")
	for _, want := range []int{103, 100} {
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != want {
			t.Fatalf("got %v (%v), want %d", resp, err, want)
		}
	}
	io.WriteString(c, "hello")
	resp, err := http.ReadResponse(r, nil)
	// Interim answers may come more than once (RFC 9110 15.2): the guest's own, and
	// ours when the body begins to be read at the same moment.
	for err == nil && resp.StatusCode == 100 {
		resp, err = http.ReadResponse(r, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "5 bytes" {
		t.Errorf("got %d %q (%v)", resp.StatusCode, b, err)
	}
}

// TestWhatIsSentBehindAnUpgradeIsNotLost: a client need not wait for the answer.
func TestWhatIsSentBehindAnUpgradeIsNotLost(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, 80, agreeing("lines", func(c net.Conn, buf *bufio.ReadWriter) {
		line, _ := buf.ReadString('\n')
		io.WriteString(c, "got "+line)
	}))
	for _, secure := range []bool{false, true} {
		c := w.dialPlain()
		if secure {
			c = w.secure(name(id, 80), "http/1.1")
		}
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\nhel", name(id, 80))
		r := bufio.NewReader(c)
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 101 {
			t.Fatalf("%v (%v)", resp, err)
		}
		io.WriteString(c, "lo\n")
		if b, err := io.ReadAll(r); err != nil || string(b) != "got hello\n" {
			t.Errorf("TLS %v: got %q (%v)", secure, b, err)
		}
	}
}

// TestAGuestThatDoesNotReadHoldsUpNobodyElse: not even behind the same connection of
// HTTP/2, which has one window for all of its requests.
func TestAGuestThatDoesNotReadHoldsUpNobodyElse(t *testing.T) {
	w := newWorld(t)
	a, b := w.sandbox(), w.sandbox()
	stuck, free := make(chan struct{}, 9), make(chan struct{})
	defer close(free)
	w.serve(a, 1, 80, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		stuck <- struct{}{}
		<-free
	}))
	w.serve(b, 1, 80, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(rw, "%d %v", n, err)
	}))
	c := over2(t)
	var sent atomic.Int64
	for range 4 {
		r := w.request(http.MethodPost, name(a, 80), "/", io.TeeReader(zeros{}, counter{&sent}))
		go c.Do(r)
	}
	for range 4 {
		<-stuck
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for last, still := int64(-1), 0; still < 20; <-tick.C { // until all buffers are full
		if now := sent.Load(); now == last {
			still++
		} else {
			last, still = now, 0
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := w.request(http.MethodPost, name(b, 80), "/", io.LimitReader(zeros{}, 8<<20))
	resp, err := c.Do(r.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != fmt.Sprintf("%d <nil>", 8<<20) {
		t.Errorf("got %q (%v)", got, err)
	}
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestBodiesOfAnySizeStreamAndAreNotKept: 300 MiB up and down, more than CubeSandbox's
// proxy lets through, in less memory than that.
func TestBodiesOfAnySizeStreamAndAreNotKept(t *testing.T) {
	const size = 300 << 20
	w := newWorld(t)
	id := w.sandbox()
	var up atomic.Int64
	w.serve(id, 1, 80, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		up.Store(n)
		io.CopyN(rw, zeros{}, size)
	}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resp, err := client1.Do(w.request(http.MethodPost, name(id, 80), "/", io.LimitReader(zeros{}, size)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != size || up.Load() != size {
		t.Errorf("%d bytes up, %d down (%v)", up.Load(), n, err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > size/4 {
		t.Errorf("%d MiB were allocated on the way", got>>20)
	}
}

// TestConnectionsOfClientsAreKept: also behind requests with a body, which the guest
// has read.
func TestConnectionsOfClientsAreKept(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	w.serve(id, 1, envdPort, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		rw.Write(b)
	}))
	c := w.dialPlain()
	r := bufio.NewReader(c)
	for i := range 200 {
		head := "Content-Length: 5\r\n\r\nhello"
		if i%2 == 1 {
			head = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
		}
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\n%s", name(id, envdPort), head)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.Close {
			t.Fatalf("request %d: %v (%v), want the connection to stay", i, resp, err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "hello" {
			t.Fatalf("request %d: %q (%v)", i, b, err)
		}
	}
}

// TestAnAnswerThatIsCutShortIsNotTakenForAWholeOne: by a guest whose server ends in
// the middle of an answer, without a reset.
func TestAnAnswerThatIsCutShortIsNotTakenForAWholeOne(t *testing.T) {
	w := newWorld(t)
	id := w.sandbox()
	for what, answer := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfirst\n",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n",
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, answer)
			c.Close()
		}()
		w.at(id, 1, 80, ln.Addr().String())
		if _, err := io.ReadAll(rawGet(t, w.dialPlain(), name(id, 80), "1.1")); err == nil {
			t.Errorf("%s: a clean end", what)
		}
		ln.Close()
	}
}
