package plan

import "fmt"

// wire is the name of a message within a round.
type wire struct {
	from, to ActorID
	value    Value
}

// end is one end of a message: an operation of an actor.
type end struct {
	actor ActorID
	op    int
}

// checkMessages proves that messages come in pairs of one Send and one Receive, between actors of
// the plan. In Recover there are only Receives; see checkOffers.
func (c *checker) checkMessages() error {
	if c.phase == RecoverPhase {
		return nil
	}
	sent, received := map[wire]end{}, map[wire]end{}
	for _, a := range c.pl.Actors {
		for i, op := range c.program(a.ID).Ops {
			var w wire
			ends := sent
			switch op.Kind {
			case Send:
				w = wire{a.ID, op.Peer, op.As}
			case Receive:
				w = wire{op.Peer, a.ID, op.Writes[0]}
				ends = received
			case Offer:
				if _, ok := c.actors[op.Peer]; !ok || op.Peer == a.ID {
					return c.errorf(a.ID, i, "its peer %q is not another actor of the plan", op.Peer)
				}
				continue
			default:
				continue
			}
			if _, ok := c.actors[op.Peer]; !ok || op.Peer == a.ID {
				return c.errorf(a.ID, i, "its peer %q is not another actor of the plan", op.Peer)
			}
			if before, ok := ends[w]; ok {
				return c.errorf(a.ID, i, "is the same message as that of operation %d", before.op)
			}
			ends[w] = end{a.ID, i}
		}
	}
	for _, a := range c.pl.Actors {
		for i, op := range c.program(a.ID).Ops {
			switch op.Kind {
			case Send:
				if _, ok := received[wire{a.ID, op.Peer, op.As}]; !ok {
					return c.errorf(a.ID, i, "%s never receives it", op.Peer)
				}
			case Receive:
				if _, ok := sent[wire{op.Peer, a.ID, op.Writes[0]}]; !ok {
					return c.errorf(a.ID, i, "%s never sends it", op.Peer)
				}
			}
		}
	}
	return nil
}

// drain runs all programs with messages that arrive at once. An operation whose Reads have not all
// come holds back its actor.
func (c *checker) drain() error {
	if c.phase == RecoverPhase {
		return nil
	}
	type position struct {
		next int
		from map[Value]ActorID // values to come by message
	}
	at := make([]position, len(c.pl.Actors))
	arrived := map[wire]bool{}
	waiting := map[wire]int{} // the actor that is held back by a message
	lacks := make([]wire, len(c.pl.Actors))
	ready := make([]int, len(c.pl.Actors))
	for i := range at {
		at[i].from = map[Value]ActorID{}
		ready[i] = i
	}
	for len(ready) > 0 {
		n := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		p, a := &at[n], c.pl.Actors[n].ID
		ops := c.program(a).Ops
	run:
		for p.next < len(ops) {
			op := &ops[p.next]
			for _, v := range op.Reads {
				from, ok := p.from[v]
				if !ok {
					continue
				}
				if w := (wire{from, a, v}); !arrived[w] {
					waiting[w], lacks[n] = n, w
					break run
				}
			}
			switch op.Kind {
			case Receive:
				p.from[op.Writes[0]] = op.Peer
			case Send:
				w := wire{a, op.Peer, op.As}
				arrived[w] = true
				if to, ok := waiting[w]; ok {
					delete(waiting, w)
					ready = append(ready, to)
				}
			}
			p.next++
		}
	}
	for n := range at {
		if at[n].next == len(c.program(c.pl.Actors[n].ID).Ops) {
			continue
		}
		// Every stuck actor lacks a message of a stuck actor, so the way along what is lacking ends in a circle.
		seen := map[int]bool{}
		story := ""
		for !seen[n] {
			seen[n] = true
			story += fmt.Sprintf("%s at operation %d (%s) waits for %s from ", c.pl.Actors[n].ID, at[n].next, c.program(c.pl.Actors[n].ID).Ops[at[n].next], lacks[n].value)
			n = c.actors[lacks[n].from]
		}
		return fmt.Errorf("plan: %s: the programs stand still: %s%s", c.phase, story, c.pl.Actors[n].ID)
	}
	return nil
}
