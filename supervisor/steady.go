package supervisor

import "time"

// steady makes a time that never goes back of a clock that may: when the clock is set back, time goes on from where it was, and
// whatever was due in a second is due in a second. The zero value is ready.
type steady struct {
	last  time.Time
	ahead time.Duration // of the clock
}

// at is the time when the clock says now.
func (s *steady) at(now time.Time) time.Time {
	t := now.Add(s.ahead)
	if t.Before(s.last) {
		s.ahead += s.last.Sub(t)
		t = s.last
	}
	s.last = t
	return t
}
