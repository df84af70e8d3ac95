package process

import (
	"testing"
	"testing/synctest"
	"time"
)

// expiry arms a deadline and returns when it came, from now.
func expiry(d *deadline, after time.Duration) func() (time.Duration, bool) {
	start := time.Now()
	var at time.Duration
	came := false
	d.set(start, start.Add(after), func() { at, came = time.Since(start), true })
	return func() (time.Duration, bool) {
		synctest.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		return at, came
	}
}

func TestDeadlineComesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadline
		result := expiry(&d, time.Minute)
		<-time.After(time.Hour)
		if at, came := result(); !came || at != time.Minute {
			t.Errorf("it came: %v, after %v", came, at)
		}
		d.shift(time.Now(), time.Hour) // too late
		d.stop()
	})
}

func TestTimeInAnImageDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadline
		result := expiry(&d, time.Minute)
		<-time.After(20 * time.Second)
		d.shift(time.Now(), time.Hour)
		<-time.After(time.Hour)
		if at, came := result(); came {
			t.Fatalf("it came after %v, in the middle of the image's time", at)
		}
		<-time.After(time.Hour)
		if at, came := result(); !came || at != time.Hour+time.Minute {
			t.Errorf("it came: %v, after %v", came, at)
		}
	})
}

func TestDeadlineThatALeapPassedWaitsForTheServer(t *testing.T) {
	for told, want := range map[bool]time.Duration{true: time.Hour + time.Minute, false: leapPatience} {
		synctest.Test(t, func(t *testing.T) {
			var d deadline
			result := expiry(&d, time.Minute)
			// What a restore after an hour looks like: the timer finds itself late.
			d.mu.Lock()
			d.at = d.at.Add(-time.Hour)
			d.mu.Unlock()
			start := time.Now()
			d.fire()
			if told {
				d.shift(time.Now(), 2*time.Hour)
			}
			<-time.After(10 * time.Hour)
			at, came := result()
			if !came || at != time.Since(start)-10*time.Hour+want {
				t.Errorf("told %v: it came: %v, after %v, want %v", told, came, at, want)
			}
		})
	}
}

func TestStoppedDeadlineDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadline
		result := expiry(&d, time.Minute)
		d.stop()
		d.shift(time.Now(), time.Hour)
		<-time.After(3 * time.Hour)
		if at, came := result(); came {
			t.Errorf("it came after %v", at)
		}
		var none deadline
		none.set(time.Now(), time.Time{}, func() { t.Error("no deadline came") })
		none.stop()
	})
}
