package actors

import (
	"sort"
	"time"
)

// silence finds who has not been heard of for too long. It is pure: time comes in.
//
// A pause of its own process is not the silence of the others: when two checks lie further apart
// than they should, as they also do when the clock has jumped, everybody is given the difference. Nobody was heard later than
// now: who was heard before the clock went back, or after a pause and before the check, is watched from now on.
type silence struct {
	interval time.Duration
	limit    time.Duration
	checked  time.Time
	heard    map[int]time.Time
}

func newSilence(interval time.Duration, suspect int) *silence {
	return &silence{interval: interval, limit: interval * time.Duration(suspect), heard: map[int]time.Time{}}
}

// hear notes a sign of life, and begins to watch who is new.
func (s *silence) hear(who int, now time.Time) { s.heard[who] = now }

// forget ends the watch over somebody.
func (s *silence) forget(who int) { delete(s.heard, who) }

// check returns who has been silent for more than the limit, and for how long; each once.
func (s *silence) check(now time.Time) map[int]time.Duration {
	if pause := now.Sub(s.checked) - 2*s.interval; !s.checked.IsZero() && pause > 0 {
		for who, at := range s.heard {
			s.heard[who] = at.Add(pause)
		}
	}
	s.checked = now
	var lost map[int]time.Duration
	for who, at := range s.heard {
		if at.After(now) {
			s.heard[who] = now
		}
		if d := now.Sub(at); d > s.limit {
			if lost == nil {
				lost = map[int]time.Duration{}
			}
			lost[who] = d
			delete(s.heard, who)
		}
	}
	return lost
}

func sorted[V any](m map[int]V) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Ints(keys)
	return keys
}
