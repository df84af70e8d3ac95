package watch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"cubesandbox/guest/envdpb/filesystem"
)

func TestAWriterOfSmallPiecesIsOneEvent(t *testing.T) {
	var q queue
	q.reserve = func(int) bool { return true }
	write := Event{Name: "f", Type: filesystem.EventType_EVENT_TYPE_WRITE}
	for range 10 * maxEvents {
		if !q.put(write) {
			t.Fatal("there is no room")
		}
	}
	create := Event{Name: "f", Type: filesystem.EventType_EVENT_TYPE_CREATE}
	q.put(create)
	q.put(create) // between the two somebody removed it
	if got := q.take(); !slices.Equal(got, []Event{write, create, create}) {
		t.Errorf("got %v", got)
	}
}

// TestAWatcherThatHasLostEventsGivesWhatItHasAndSaysSo: nothing is left out silently.
func TestAWatcherThatHasLostEventsGivesWhatItHasAndSaysSo(t *testing.T) {
	s, home := newSet(t)
	const others = maxQueued - 10_000 // is held by other watchers
	s.queued = others
	w := open(t, s, "~", Options{})
	for i := range 1000 {
		do(t, os.Symlink(".", fmt.Sprintf("%s/%d", home, i)))
	}
	<-w.done
	got, err := w.Take()
	for i, e := range got {
		if want := fmt.Sprint(i); e.Name != want {
			t.Fatalf("event %d is of %q, want %q", i, e.Name, want)
		}
	}
	if len(got) < 100 || len(got) > 200 || err != nil {
		t.Errorf("%d events, %v", len(got), err)
	}
	for range 2 {
		if got, err := w.Take(); got != nil || !errors.Is(err, ErrLost) {
			t.Errorf("then %d events, %v; want that some were lost", len(got), err)
		}
	}
	if s.queued != others || s.watches != 0 {
		t.Errorf("%d bytes and %d watches are held", s.queued-others, s.watches)
	}
}

func TestAQueueHasItsBounds(t *testing.T) {
	for _, name := range []string{"", string(make([]byte, 4000))} {
		var q queue
		q.reserve = func(int) bool { return true }
		n, e := 0, Event{Name: name, Type: filesystem.EventType_EVENT_TYPE_CREATE}
		for q.put(e) {
			n++
		}
		if want := min(maxEvents, maxBytes/(len(name)+64)); n != want {
			t.Errorf("names of %d bytes: %d events, want %d", len(name), n, want)
		}
		if got := q.take(); len(got) != n || q.put(e) {
			t.Errorf("%d events, or more after some were lost", len(got))
		}
	}
}

func TestWatchersAreBoundedAndThoseThatAreOverMakeRoom(t *testing.T) {
	s, _ := newSet(t)
	var ids []string
	for range maxWatchers {
		w, err := s.Open(t.Context(), "user", "~", Options{})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.Keep(w))
	}
	if _, err := s.Open(t.Context(), "user", "~", Options{}); !errors.Is(err, ErrTooMany) {
		t.Errorf("one too many: %v", err)
	}
	s.Ask(ids[0]).end(ErrLost)
	w, err := s.Open(t.Context(), "user", "~", Options{})
	if err != nil || s.Ask(ids[0]) != nil {
		t.Fatalf("in the place of one that is over: %v", err)
	}
	w.Close()
	for _, id := range ids[1:] {
		if len(id) != 21 || id[0] != 'w' || !s.Remove(id) || s.Remove(id) {
			t.Errorf("watcher %q", id)
		}
	}
	if len(s.open) != 0 || len(s.kept) != 0 || s.watches != 0 {
		t.Errorf("%d watchers and %d watches are left", len(s.open), s.watches)
	}
}

// TestAPolledWatcherThatIsForgottenMakesRoom: the one whose client has not asked for the
// longest.
func TestAPolledWatcherThatIsForgottenMakesRoom(t *testing.T) {
	s, _ := newSet(t)
	var ids []string
	for range maxWatchers - 1 {
		w, err := s.Open(t.Context(), "user", "~", Options{})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.Keep(w))
	}
	open(t, s, "~", Options{}) // a stream, which has its client
	ago := func(id string, d time.Duration) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kept[id].asked = s.kept[id].asked.Add(-d)
	}
	for i, id := range ids {
		ago(id, min(time.Duration(i)*10*time.Second, forgotten-time.Minute))
	}
	if _, err := s.Open(t.Context(), "user", "~", Options{}); !errors.Is(err, ErrTooMany) {
		t.Errorf("while all are asked for: %v", err)
	}
	ago(ids[3], time.Hour)
	ago(ids[7], 2*time.Hour)
	ago(ids[9], 3*time.Hour)
	if s.Ask(ids[9]) == nil { // after all
		t.Error("a watcher is gone though none was to be opened")
	}
	for _, id := range []string{ids[7], ids[3]} {
		w, err := s.Open(t.Context(), "user", "~", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Keep(w); s.Ask(id) != nil || len(s.open) != maxWatchers {
			t.Errorf("it is another that has made room; there are %d", len(s.open))
		}
	}
	if _, err := s.Open(t.Context(), "user", "~", Options{}); !errors.Is(err, ErrTooMany) || len(s.kept) != maxWatchers-1 {
		t.Errorf("in the end: %v, and %d are polled", err, len(s.kept))
	}
	for id := range maps.Clone(s.kept) {
		s.Remove(id)
	}
}

func TestAWatcherThatWouldWatchTooMuchSaysSo(t *testing.T) {
	s, home := newSet(t)
	do(t, os.MkdirAll(home+"/d/a", 0o755), os.Mkdir(home+"/e", 0o755))
	s.watches = maxWatches - 2
	if _, err := s.Open(t.Context(), "user", "~", Options{Recursive: true}); !errors.Is(err, ErrTooMany) {
		t.Errorf("four directories: %v", err)
	}
	w := open(t, s, "d", Options{Recursive: true})
	do(t, os.Mkdir(home+"/d/b", 0o755))
	until(t, w, "create b")
	<-w.done
	if _, err := w.Take(); !errors.Is(err, ErrTooMany) {
		t.Errorf("a third directory: %v", err)
	}
	if s.watches != maxWatches-2 {
		t.Errorf("%d watches are held", s.watches-maxWatches+2)
	}
}

func TestAClosedWatcherSaysSo(t *testing.T) {
	s, _ := newSet(t)
	w, err := s.Open(t.Context(), "user", "~", Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := w.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := w.Take(); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00name\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range parse(b) {
			if len(c.name) > len(b) {
				t.Error(c)
			}
		}
	})
}
