package plan

// snapshot: the state of every shard goes to the trainer; the others only report.
func (l *lowering) snapshot(a ActorID, index int) []Op {
	var o ops
	p, d, _ := a.Rank()
	switch a.Role() {
	case "trainer":
		var states []Value
		for _, s := range l.owners() {
			o.receive(s.state, s.id)
			states = append(states, s.state)
		}
		l.finishTrainer(&o, states)
		return o
	case "shard":
		l.begin(&o, a)
		if len(l.Parts(p, d)) > 0 {
			o.add(Op{Kind: Collect, Writes: []Value{state(p, d)}})
			o.send(state(p, d), Trainer)
			if l.mirrored(p, d) {
				o.add(Op{Kind: Offer, Peer: MirrorID(p, d), As: state(p, d), Reads: []Value{state(p, d)}})
			}
		}
	case "mirror":
		l.begin(&o, a)
		l.offerState(&o, a)
	}
	o.finish(index)
	return o
}
