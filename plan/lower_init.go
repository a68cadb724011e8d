package plan

// init: shards make or restore their state and give the stages their parameters.
func (l *lowering) init(a ActorID, index int) []Op {
	var o ops
	p, d, _ := a.Rank()
	switch a.Role() {
	case "trainer":
		if owners := l.owners(); l.Resume && len(owners) > 0 {
			collect := Op{Kind: Collect}
			for _, s := range owners {
				collect.Writes = append(collect.Writes, s.state)
			}
			o.add(collect)
			for _, s := range owners {
				o.send(s.state, s.id)
			}
		}
		l.finishTrainer(&o, nil)
		return o
	case "stage":
		l.load(&o, p)
	case "shard":
		if parts := l.Parts(p, d); len(parts) > 0 {
			restore := Op{Kind: Restore}
			if l.Resume {
				o.receive(state(p, d), Trainer)
				restore.Reads = []Value{state(p, d)}
			}
			for _, part := range parts {
				restore.Writes = append(restore.Writes, params(part.Bucket, d))
			}
			o.add(restore)
			for _, part := range parts {
				l.publish(&o, part.Bucket, d)
			}
		}
	}
	o.finish(index)
	return o
}

// owner is a shard that owns something.
type owner struct {
	id          ActorID
	state, norm Value
}

// owners are the shards that own something, by pipeline rank and then data rank.
func (l *lowering) owners() []owner {
	var owners []owner
	for p := range l.Stages {
		for d := range l.degree() {
			if len(l.Parts(p, d)) > 0 {
				owners = append(owners, owner{ShardID(p, d), state(p, d), norm(p, d)})
			}
		}
	}
	return owners
}
