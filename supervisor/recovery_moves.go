package supervisor

import (
	"fmt"
	"slices"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

// slow moves an actor, unless it was moved for that not long ago: two nodes of equal speed must not
// play ball with it.
func (r *Recovery) slow(e Slow) []Decision {
	l := r.byID[e.Actor]
	if l == nil || e.Incarnation != l.incarnation || l.state != living || slices.Contains(r.planned, l) {
		return nil
	}
	if !l.settled.IsZero() && r.now.Sub(l.settled) < r.limits.Window {
		return []Decision{Noted{fmt.Sprintf("%s stays where it is: it was moved within the last %s (%s)", e.Actor, r.limits.Window, e.Reason)}}
	}
	if !r.another(l.Node) {
		return []Decision{Noted{fmt.Sprintf("%s stays where it is: there is no other node (%s)", e.Actor, e.Reason)}}
	}
	l.settled, l.fleeing, l.why = r.now, true, e.Reason
	r.nodes[l.Node].avoid = r.now.Add(r.limits.Window)
	r.planned = append(r.planned, l)
	return nil
}

// due begins the lives whose time has come, and one planned move when nobody is down.
func (r *Recovery) due() []Decision {
	var out []Decision
	quiet := true
	for _, l := range r.lives {
		quiet = quiet && l.state == living
		switch {
		case l.state == stranded && !r.now.Before(l.due):
			f := machine.Failed{Actor: l.Actor, Incarnation: l.incarnation, Cause: l.reason}
			return append(out, r.escalate(&f, fmt.Sprintf("no node is left for %s, and none has joined for %s; %s", l.Actor, r.limits.Join, l.failure))...)
		case l.state != waiting || r.now.Before(l.due):
			continue
		}
		to, ok := r.choose(l, len(l.failures) > 1)
		if !ok {
			l.state, l.due = stranded, r.now.Add(r.limits.Join)
			out = append(out, Noted{fmt.Sprintf("%s waits for a node: none is left", l.Actor)})
			continue
		}
		out = append(out, r.begin(l, to, false))
	}
	if quiet {
		out = append(out, r.move()...)
	}
	return out
}

// move begins planned moves: as many at once as leave the sources of everyone who moves where they are.
func (r *Recovery) move() []Decision {
	var out []Decision
	moving := map[plan.ActorID]bool{}
	var later []*life
	for _, l := range r.planned {
		if l.Lost {
			continue
		}
		if r.tied(l, moving) {
			later = append(later, l)
			continue
		}
		if to, ok := r.better(l); ok {
			moving[l.Actor], l.reason = true, l.why
			out = append(out, r.begin(l, to, true))
		}
		l.fleeing = false
	}
	r.planned = later
	return out
}

// better is the node that an actor moves to, if that is worth it: its home; or another one that has no more to do with
// it than its own has without it. Moves for less would go on for ever. An actor that flees a slow node takes any.
func (r *Recovery) better(l *life) (int, bool) {
	if h := r.nodes[l.home]; !l.fleeing && l.home != l.Node && h != nil && h.alive && !r.now.Before(h.avoid) && !r.holdsPartner(l.home, l) {
		return l.home, true
	}
	to, ok := r.choose(l, true)
	if !ok || to == l.Node {
		return 0, false
	}
	relieved := r.holdsPartner(l.Node, l) && !r.holdsPartner(to, l)
	return to, l.fleeing || relieved || r.load(to, l)+l.Bytes <= r.load(l.Node, l)
}

// tied reports whether an actor that moves is a source of l, or l of it.
func (r *Recovery) tied(l *life, moving map[plan.ActorID]bool) bool {
	for a := range moving {
		if slices.Contains(l.Sources, a) || slices.Contains(r.byID[a].Sources, l.Actor) {
			return true
		}
	}
	return false
}

func (r *Recovery) begin(l *life, node int, planned bool) Decision {
	d := Respawn{Actor: l.Actor, Incarnation: l.incarnation + 1, From: l.Node, Node: node, Planned: planned, Reason: l.reason}
	l.incarnation++
	if planned {
		l.failure = l.reason
	}
	l.Node, l.state, l.restored = node, catching, false
	return d
}
