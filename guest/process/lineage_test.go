package process

import (
	"strings"
	"testing"
	"time"
)

func TestHowFarWhatWasReadStillHasBeen(t *testing.T) {
	lives := func(s string) []life {
		l, err := parseLives(s)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, c := range []struct {
		what, read, now string
		want            int64 // -1: another process
	}{
		{"the same life", "1:0", "1:0", 1000},
		{"a reader that does not say", "", "1:0,2:500", 1000},
		{"paused and resumed, or rolled back to there", "1:0", "1:0,2:500", 500},
		{"twice", "1:0", "1:0,2:500,3:700", 500},
		{"rolled back twice, the second time further on", "1:0", "1:0,2:100,3:500", 100},
		{"read in a life that has been thrown away", "1:0,2:100", "1:0,3:500", 100},
		{"read before a life that has been thrown away", "1:0", "1:0,3:500", 500},
		{"read in a later life of what was gone back to", "1:0,2:500,3:700", "1:0,2:500,4:600", 600},
		{"of another process", "7:0", "1:0", -1},
		{"of one that began in the life after", "1:0", "2:0", -1},
		{"after more lives than are known", "1:0", "1:0" + strings.Repeat(",5:900", maxLives-1), 0},
		{"in more lives than are known", "1:0" + strings.Repeat(",5:900", maxLives-1), "1:0,2:900", 0},
		{"only the newest lives are known", "5:50,6:60", "6:60,7:70", 70},
	} {
		l := lineage{lives: lives(c.now)}
		got, same := l.common(lives(c.read), 1000)
		if !same {
			got = -1
		}
		if got != c.want {
			t.Errorf("%s: %q is now %q: got %d, want %d", c.what, c.read, c.now, got, c.want)
		}
	}
}

// TestALifeBeginsWhereItsImageWasSaved: what is written between a restore and the moment
// at which the agent is told of it is of the new life.
func TestALifeBeginsWhereItsImageWasSaved(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	var l lineage
	for i := range 1000 { // ten bytes each millisecond, saved after half of them
		now := start.Add(time.Duration(i) * time.Millisecond)
		if i >= 500 {
			now = now.Add(time.Hour)
		}
		l.mark(now, int64(10*i))
	}
	l.begin(2, start.Add(30*time.Minute), 10_000)
	if want := (life{2, 5000}); l.lives[0] != want {
		t.Errorf("got %+v, want %+v", l.lives[0], want)
	}
	l.begin(3, start.Add(2*time.Hour), 10_000) // nothing was written since
	if want := (life{3, 10_000}); l.lives[1] != want {
		t.Errorf("got %+v, want %+v", l.lives[1], want)
	}
	for i := range 10 * maxMarks { // so much that it cannot be told any more
		l.mark(start.Add(3*time.Hour+time.Duration(i)*markEvery), int64(10_000+i))
	}
	l.begin(4, start.Add(2*time.Hour), 20_000)
	if want := (life{4, 0}); l.lives[2] != want {
		t.Errorf("got %+v, want %+v", l.lives[2], want)
	}
	if len(l.marks) > maxMarks {
		t.Errorf("%d marks", len(l.marks))
	}
}

func TestFewLivesAreKnown(t *testing.T) {
	var l lineage
	for i := range 100 {
		l.begin(uint64(i), time.Time{}, int64(i))
	}
	if len(l.lives) != maxLives || l.lives[0] != (life{0, 0}) || l.lives[1].generation != 100-maxLives+1 || l.lives[maxLives-1] != (life{99, 99}) {
		t.Errorf("got %d lives, the last %+v", len(l.lives), l.lives[len(l.lives)-1])
	}
	back, err := parseLives(l.String())
	if to, same := l.common(back, 200); err != nil || len(back) != maxLives || to != 200 || !same {
		t.Errorf("%q gives %+v, %v: %d, %v", l.String(), back, err, to, same)
	}
	if to, same := l.common([]life{{0, 0}}, 200); to != 0 || !same {
		t.Errorf("who has read in the first only: %d, %v", to, same)
	}
}

func FuzzLivesAreParsedOrRefused(f *testing.F) {
	for _, s := range []string{"", "1:0", "1:0,2:500", ":", "1:-1", "1", ",", strings.Repeat("1:1,", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		lives, err := parseLives(s)
		if err != nil {
			return
		}
		l := lineage{lives: lives}
		if again, err := parseLives(l.String()); err != nil || len(again) != len(lives) {
			t.Errorf("%q gives %v, which is %q, which gives %v, %v", s, lives, l.String(), again, err)
		}
		if n, same := l.common(lives, 10); n != 10 || !same {
			t.Errorf("%q has %d bytes in common with itself", s, n)
		}
	})
}
