package sim

import (
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

// moment is what happens at a virtual time. Moments of one time are ordered by number, in which they were made.
type moment struct {
	at     time.Duration
	number int
	// event happens to actor, or to whoever lives as to at that time.
	actor *actor
	to    plan.ActorID
	event machine.Event
	// from is the life that sent a message.
	from *actor
	// ends says that the operation on the actor's stream is complete.
	ends bool
	// do, if not nil, happens to nobody.
	do func()
}

func (m *moment) before(n *moment) bool {
	return m.at < n.at || m.at == n.at && m.number < n.number
}

// queue is a binary heap of moments, the earliest first.
type queue []moment

func (q *queue) push(m moment) {
	h := append(*q, m)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	*q = h
}

func (q *queue) pop() moment {
	h := *q
	first := h[0]
	last := len(h) - 1
	h[0], h[last] = h[last], moment{}
	h = h[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1].before(&h[down]) {
			down++
		}
		if !h[down].before(&h[i]) {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	*q = h
	return first
}
