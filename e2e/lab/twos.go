package lab

import "sync"

// ByTwos calls f n times, two at a time. One that returns false is the last of its two.
func ByTwos(n int, f func() bool) {
	next := make(chan struct{}, n)
	for range n {
		next <- struct{}{}
	}
	close(next)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range next {
				if !f() {
					return
				}
			}
		})
	}
	wg.Wait()
}
