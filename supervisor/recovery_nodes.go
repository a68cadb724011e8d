package supervisor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

// evacuate moves all actors off a node.
func (r *Recovery) evacuate(node int, f *machine.Failed) []Decision {
	h := r.nodes[node]
	n := len(h.failures)
	h.failures, h.avoid = nil, r.now.Add(r.limits.Window)
	var moved []*life
	for _, l := range r.lives {
		if l.Node != node || l.Actor == plan.Trainer {
			continue
		}
		if l.state == living || l.state == catching {
			l.state, l.due = waiting, r.now
			l.failure = r.byID[f.Actor].failure
		}
		l.reason = fmt.Sprintf("%s on node %d within %s: all its actors move", count(n, "failure", "failures"), node, r.limits.Window)
		moved = append(moved, l)
	}
	return r.exhausted(f, moved...)
}

func (r *Recovery) nodeLost(e NodeLost) []Decision {
	h := r.nodes[e.Node]
	if h == nil || !h.alive {
		return nil
	}
	h.alive, h.failures = false, nil
	f := machine.Failed{Node: fmt.Sprintf("node %d", e.Node), Round: plan.Round{Step: r.committed, Phase: r.phase}, Cause: e.Cause}
	short, _, _ := strings.Cut(e.Cause, ";")
	var lost []*life
	for _, l := range r.lives {
		if l.Node != e.Node {
			continue
		}
		if l.state == living || l.state == catching {
			r.down(l, false, fmt.Sprintf("node %d is lost: %s", e.Node, short))
			lost = append(lost, l)
		}
	}
	r.planned = slices.DeleteFunc(r.planned, func(l *life) bool { return l.state != living })
	if len(lost) == 0 {
		return []Decision{Noted{fmt.Sprintf("node %d is lost, and had no actors: %s", e.Node, e.Cause)}}
	}
	return append([]Decision{Noted{fmt.Sprintf("node %d is lost, with %d of the actors: %s", e.Node, len(lost), e.Cause)}}, r.exhausted(&f, lost...)...)
}

// nodeJoined uses a node: for actors without one, and for those that were packed onto other nodes.
func (r *Recovery) nodeJoined(node int) []Decision {
	if h := r.nodes[node]; h != nil && h.alive {
		return nil
	}
	r.nodes[node] = &host{alive: true}
	back, begin := 0, 0
	for _, l := range r.lives {
		switch {
		case l.state == stranded:
			l.state, l.due = waiting, r.now
			begin++
		case l.Node != l.home && r.crowded(l) && !slices.Contains(r.planned, l):
			l.why = fmt.Sprintf("node %d has joined, and %s was packed onto node %d", node, l.Actor, l.Node)
			r.planned = append(r.planned, l)
			back++
		}
	}
	what := "no actor needs it, so it is a spare"
	switch {
	case begin > 0:
		what = count(begin, "actor that had no node begins", "actors that had no node begin") + " there"
	case back > 0:
		what = count(back, "actor that was packed onto another node may move", "actors that were packed onto other nodes may move")
	}
	return []Decision{Noted{fmt.Sprintf("node %d has joined; %s", node, what)}}
}
