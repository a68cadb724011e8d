package plan

// snapshot: the state of every shard goes to the trainer; stages only report.
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
		if len(l.Parts(p, d)) > 0 {
			o.add(Op{Kind: Collect, Writes: []Value{state(p, d)}})
			o.send(state(p, d), Trainer)
		}
	}
	o.finish(index)
	return o
}
