package plan

// init: shards and mirrors make or restore their state, and shards give the stages their parameters.
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
				if s.mirror != "" {
					o.send(s.state, s.mirror)
				}
			}
		}
		l.finishTrainer(&o, nil)
		return o
	case "stage":
		l.load(&o, p, ShardID)
	case "mirror":
		if l.Resume {
			o.restore(state(p, d), Trainer)
		} else {
			o.add(Op{Kind: Restore})
		}
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
	mirror      ActorID // empty if it has none
	state, norm Value
}

// owners are the shards that own something, by pipeline rank and then data rank.
func (l *lowering) owners() []owner {
	var owners []owner
	for p := range l.Stages {
		for d := range l.degree() {
			if len(l.Parts(p, d)) > 0 {
				o := owner{id: ShardID(p, d), state: state(p, d), norm: norm(p, d)}
				if l.mirrored(p, d) {
					o.mirror = MirrorID(p, d)
				}
				owners = append(owners, o)
			}
		}
	}
	return owners
}
