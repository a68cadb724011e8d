package actors

import (
	"sync/atomic"
	"time"
)

// Clock is what a node decides by: how long somebody is silent, whether nothing moves any more, when a link sends again. A fault
// moves it, and then it may go back; what a process measures by its own clock never does. Nil is the clock of the process.
type Clock struct{ ahead atomic.Int64 }

// Now is the time.
func (c *Clock) Now() time.Time {
	now := time.Now()
	if c == nil {
		return now
	}
	return now.Add(time.Duration(c.ahead.Load()))
}

// Jump moves the clock by d, which may be below 0.
func (c *Clock) Jump(d time.Duration) { c.ahead.Add(int64(d)) }
