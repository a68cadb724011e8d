package plan

// recover: an actor that begins a new life gets the state at the start of the step. What it receives
// is offered in the round that is open; it reports in that round alone.
func (l *lowering) recover(a ActorID, _ int) []Op {
	var o ops
	p, d, _ := a.Rank()
	switch a.Role() {
	case "stage":
		l.load(&o, p, l.keeper)
	case "shard":
		if l.mirrored(p, d) {
			o.restore(state(p, d), MirrorID(p, d))
		}
	case "mirror":
		o.restore(state(p, d), ShardID(p, d))
	}
	return o
}

func (o *ops) restore(v Value, from ActorID) {
	o.receive(v, from)
	o.add(Op{Kind: Restore, Reads: []Value{v}})
}

// mirrored reports whether shard (p, d) has a mirror.
func (l *lowering) mirrored(p, d int) bool {
	return l.Job.Supervisor.Mirror && len(l.Parts(p, d)) > 0
}

// keeper is who gives a stage that recovers the parameters of shard (p, d): its mirror, because
// stages and shards of the same ranks sit on one node and may end together, else the shard.
func (l *lowering) keeper(p, d int) ActorID {
	if l.Job.Supervisor.Mirror {
		return MirrorID(p, d)
	}
	return ShardID(p, d)
}

// begin starts the program of a shard or mirror in any phase but Init: the step before has committed, so
// what is held is applied; and from here on until the commit the state at the start of the step can be had.
// Nothing before an Offer waits for a message, so no two actors can wait for each other's.
func (l *lowering) begin(o *ops, a ActorID) {
	p, d, _ := a.Rank()
	parts := l.Parts(p, d)
	if len(parts) == 0 {
		return
	}
	advance := Op{Kind: Advance}
	if a == l.keeper(p, d) {
		for _, part := range parts {
			advance.Writes = append(advance.Writes, before(part.Bucket, d))
		}
	}
	o.add(advance)
	for _, v := range advance.Writes {
		for _, q := range l.uses[v.Index] {
			for e := range l.degree() {
				o.add(Op{Kind: Offer, Peer: StageID(q, e), As: params(v.Index, v.Piece), Reads: []Value{v}})
			}
		}
	}
}

// offerState offers the state to the other one of a shard and its mirror. It is a copy, made when it is needed.
func (l *lowering) offerState(o *ops, a ActorID) {
	if p, d, _ := a.Rank(); l.mirrored(p, d) {
		o.add(Op{Kind: Offer, Peer: l.other(a), As: state(p, d), Writes: []Value{state(p, d)}})
	}
}

func (l *lowering) other(a ActorID) ActorID {
	p, d, _ := a.Rank()
	if a.Role() == "shard" {
		return MirrorID(p, d)
	}
	return ShardID(p, d)
}
