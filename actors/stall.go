package actors

import (
	"fmt"
	"strings"
	"time"

	"github.com/troupe-train/troupe/plan"
)

// stall finds that nothing moves any more. It is pure: time comes in.
type stall struct {
	deadline time.Duration
	progress uint64
	since    time.Time
	told     bool
}

// look is given what all actors do. It returns true once for each time that nobody makes progress
// for the deadline, while a round is open somewhere.
func (s *stall) look(all []Stats, now time.Time) bool {
	var sum uint64
	open := false
	for _, a := range all {
		sum += a.Progress
		open = open || a.Wait.Op != ""
	}
	if sum != s.progress || !open || s.since.IsZero() {
		s.progress, s.since, s.told = sum, now, false
		return false
	}
	if s.told || now.Sub(s.since) < s.deadline {
		return false
	}
	s.told = true
	return true
}

// blame follows who waits for whom, from the trainer or else from the first actor that waits, to the
// actor that all the others wait for. The text tells the way.
func blame(all []Stats) (Stats, string) {
	by := make(map[plan.ActorID]Stats, len(all))
	var at Stats
	found := false
	for _, a := range all {
		by[a.Actor] = a
		if a.Wait.Op != "" && (!found || a.Actor == plan.Trainer) {
			at, found = a, true
		}
	}
	if !found {
		return Stats{}, "nobody has a round open"
	}
	var way []string
	seen := map[plan.ActorID]bool{}
	for {
		if seen[at.Actor] {
			way = append(way, "which closes a circle")
			return at, strings.Join(way, "; ")
		}
		seen[at.Actor] = true
		way = append(way, fmt.Sprintf("%s (%s) is %s", at.Actor, nodeName(at.Node), doing(at)))
		if at.Failure != "" {
			way = append(way, "it has failed: "+at.Failure)
			return at, strings.Join(way, "; ")
		}
		if at.Wait.Running || at.Wait.Op == "" || at.Wait.From == "" || at.Wait.From == at.Actor {
			return at, strings.Join(way, "; ")
		}
		next, ok := by[at.Wait.From]
		if !ok {
			way = append(way, fmt.Sprintf("%s is not heard of", at.Wait.From))
			return Stats{Actor: at.Wait.From, Node: -1}, strings.Join(way, "; ")
		}
		at = next
	}
}

func doing(a Stats) string {
	text := a.Wait.String()
	if a.Unacknowledged > 0 {
		text += fmt.Sprintf(" (%d bytes that it sent to other nodes are not acknowledged)", a.Unacknowledged)
	}
	return text
}
