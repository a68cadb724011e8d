package actors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/troupe-train/troupe/plan"
)

// lifeOf names one life of an actor.
type lifeOf struct {
	actor       plan.ActorID
	incarnation int
}

// stall finds that nothing moves any more. It is pure: time comes in. When two looks lie further apart than twice the interval,
// the time between does not count: whoever looks did not live through it.
type stall struct {
	deadline time.Duration
	interval time.Duration // between looks; 0 if they come at any time
	looked   time.Time
	progress map[lifeOf]uint64
	since    time.Time
	// told counts how often it was found that nothing moves.
	told int
}

// look is given what all actors do. It returns true each time that nobody has made progress for the deadline, while a
// round is open somewhere. A new life is progress, whatever it has done so far.
func (s *stall) look(all []Stats, now time.Time) bool {
	progress := make(map[lifeOf]uint64, len(all))
	open := false
	for _, a := range all {
		progress[lifeOf{a.Actor, a.Incarnation}] = a.Progress
		open = open || a.Wait.Op != ""
	}
	if pause := now.Sub(s.looked) - 2*s.interval; s.interval > 0 && !s.looked.IsZero() && pause > 0 {
		s.since = s.since.Add(pause)
	}
	s.looked = now
	if s.since.After(now) { // the clock has gone back
		s.since = now
	}
	if !maps.Equal(progress, s.progress) || !open || s.since.IsZero() {
		s.progress, s.since = progress, now
		return false
	}
	if now.Sub(s.since) < s.deadline {
		return false
	}
	s.since = now
	s.told++
	return true
}

// blame follows who waits for whom, from the trainer or else from the first actor that waits, to the
// actor that all the others wait for. The text tells the way. Those who wait for each other in a circle have lost a
// message of one of them, which either end of its way can have sent again by a new life; one of them is blamed, another one at each
// turn, and the trainer only when there is nobody else.
func blame(all []Stats, turn int) (Stats, string) {
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
	var seen []Stats
	for {
		if i := slices.IndexFunc(seen, func(a Stats) bool { return a.Actor == at.Actor }); i >= 0 {
			way = append(way, "which closes a circle")
			circle := seen[i:]
			if others := slices.DeleteFunc(slices.Clone(circle), func(a Stats) bool { return a.Actor == plan.Trainer }); len(others) > 0 {
				circle = others
			}
			return circle[turn%len(circle)], strings.Join(way, "; ")
		}
		seen = append(seen, at)
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
