//go:build !amd64

package cpu

import "sync/atomic"

// pause lets some time pass. n is at least 1.
func pause(n int) {
	var x atomic.Int32
	for range n {
		x.Load()
	}
}
