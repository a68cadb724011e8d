package plan

// predictRecovery is the most that actor i holds in a round in which it, or any other, begins a new life: an upper
// bound. It walks Recover and then the round; whatever neighbours have sent is sent to it again at once; it gives its
// state to the other one of a shard and its mirror as soon as that can be asked for, in a copy that is held until the
// commit; and if the run has several nodes, each neighbour may have come to another than its own.
func predictRecovery(pl *Plan, i int) int64 {
	apart := make(map[ActorID]int, len(pl.Actors))
	several := false
	for n, a := range pl.Actors {
		apart[a.ID] = n
		several = several || a.Node != 0
	}
	if !several {
		clear(apart)
	}
	self := apart[pl.Actors[i].ID]
	var peak int64
	for _, ph := range []Phase{EvaluatePhase, SnapshotPhase, TrainPhase} {
		var a account
		m := newMemory(pl, RecoverPhase, i, apart, &a)
		m.found()
		m.offers = true
		for _, ph := range []Phase{RecoverPhase, ph} {
			for _, op := range pl.Program(m.actor, ph).Ops {
				if op.Kind == Receive && apart[op.Peer] != self {
					m.phase = ph
					m.values[op.Writes[0]] = m.alloc(messageBytes, m.bytes(op.Writes[0]))
				}
			}
		}
		for _, ph := range []Phase{RecoverPhase, ph} {
			m.phase = ph
			ops := pl.Program(m.actor, ph).Ops
			for k := range ops {
				m.run(&ops[k])
				m.free(&ops[k])
			}
		}
		release(m.outbox)
		m.advance()
		peak = max(peak, a.peak)
	}
	return peak
}
