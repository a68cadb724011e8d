package plan

// evaluate: forward passes over held-out text; shards and mirrors only report.
func (l *lowering) evaluate(a ActorID, index int) []Op {
	var o ops
	p, d, _ := a.Rank()
	switch a.Role() {
	case "trainer":
		l.feed(&o, l.Held)
		l.finishTrainer(&o, l.losses(&o, l.Held))
		return o
	case "stage":
		if p >= l.active.Lo && p < l.active.Hi {
			for m := range span(Share(l.Held, d)) {
				l.forward(&o, p, d, m, false)
			}
		}
	case "shard", "mirror":
		l.begin(&o, a)
		l.offerState(&o, a)
	}
	o.finish(index)
	return o
}
