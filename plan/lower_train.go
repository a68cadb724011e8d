package plan

import (
	"slices"

	"github.com/troupe-train/troupe/plan/schedule"
)

// train: one step.
func (l *lowering) train(a ActorID, index int) []Op {
	var o ops
	p, d, _ := a.Rank()
	switch a.Role() {
	case "trainer":
		l.trainTrainer(&o)
		return o
	case "stage":
		l.trainStage(&o, p, d)
	case "shard":
		l.trainShard(&o, a)
	case "mirror":
		l.trainMirror(&o, a)
	}
	o.finish(index)
	return o
}

func (l *lowering) trainTrainer(o *ops) {
	l.feed(o, l.Train)
	losses := l.losses(o, l.Train)
	decide := Op{Kind: Decide, Reads: slices.Clone(losses), Writes: []Value{verdict()}}
	owners := l.owners()
	for _, s := range owners {
		o.receive(s.norm, s.id)
		decide.Reads = append(decide.Reads, s.norm)
	}
	o.add(decide)
	for _, s := range owners {
		o.send(verdict(), s.id)
		if s.mirror != "" {
			o.send(verdict(), s.mirror)
		}
	}
	l.finishTrainer(o, losses)
}

// trainStage lowers the rank's order of F, B and W. The order is made for the ranks in active.
func (l *lowering) trainStage(o *ops, p, d int) {
	if p < l.active.Lo || p >= l.active.Hi {
		return
	}
	share := Share(l.Train, d)
	sums := l.newSums(p, share)
	order := l.order.Order(schedule.Shape{Ranks: l.active.Len(), Micro: share.Len()})
	for _, t := range order[p-l.active.Lo] {
		m := share.Lo + t.Micro
		switch t.Kind {
		case schedule.F:
			l.forward(o, p, d, m, true)
		case schedule.B:
			l.backwardInput(o, p, d, m)
		case schedule.W:
			l.backwardWeight(o, p, m, sums)
		}
	}
	l.load(o, p, ShardID)
}

func (l *lowering) backwardInput(o *ops, p, d, m int) {
	s := l.Stages[p]
	if s.Hi < len(l.Model.Layers) {
		o.receive(activGrad(s.Hi, m), StageID(p+1, d))
	}
	if s.Len() > 0 {
		op := Op{Kind: BackwardInput, Lo: s.Lo, Hi: s.Hi, Micro: m, Reads: []Value{saved(0, m)}, Writes: []Value{stashed(0, m)}}
		if s.Hi < len(l.Model.Layers) {
			op.Reads = append(op.Reads, activGrad(s.Hi, m))
		}
		if s.Lo > 0 {
			op.Writes = append(op.Writes, activGrad(s.Lo, m))
		}
		o.add(op)
	}
	if s.Lo > 0 {
		o.send(activGrad(s.Lo, m), StageID(p-1, d))
	}
}

// backwardWeight lowers W, and with it the additions of the gradient tree and the sends of the
// nodes that are complete.
func (l *lowering) backwardWeight(o *ops, p, m int, sums []*sum) {
	s := l.Stages[p]
	if s.Len() == 0 {
		return
	}
	op := Op{Kind: BackwardWeight, Lo: s.Lo, Hi: s.Hi, Micro: m, Reads: []Value{saved(0, m), stashed(0, m)}}
	for _, u := range sums {
		op.Writes = append(op.Writes, gradient(u.bucket, u.use, Range{m, m + 1}, -1))
	}
	o.add(op)
	for _, u := range sums {
		l.grow(o, u, Range{m, m + 1})
	}
}

// sum is the gradient tree of one use of a bucket, as far as a stage has it.
type sum struct {
	bucket, use int
	// cover are the nodes that go to the shards; have are those that are there.
	cover []Range
	have  map[Range]bool
}

// newSums starts the trees of the uses in a rank's layers, in canonical order: bucket, then use.
func (l *lowering) newSums(p int, share Range) []*sum {
	var sums []*sum
	cover := Cover(share, len(l.Train))
	for _, b := range l.buckets[p] {
		for use, layer := range l.Model.Buckets()[b].Uses {
			if layer >= l.Stages[p].Lo && layer < l.Stages[p].Hi {
				sums = append(sums, &sum{bucket: b, use: use, cover: cover, have: map[Range]bool{}})
			}
		}
	}
	return sums
}

// grow adds a node, and its ancestors as long as both children are there. A node of the cover is
// sent to the shards that own the bucket.
func (l *lowering) grow(o *ops, u *sum, node Range) {
	for !slices.Contains(u.cover, node) {
		u.have[node] = true
		parent, _ := Parent(node, len(l.Train))
		lower, upper := Children(parent)
		if !u.have[lower] || !u.have[upper] {
			return
		}
		delete(u.have, lower)
		delete(u.have, upper)
		o.add(Op{
			Kind: Add, Bucket: u.bucket,
			Reads:  []Value{gradient(u.bucket, u.use, lower, -1), gradient(u.bucket, u.use, upper, -1)},
			Writes: []Value{gradient(u.bucket, u.use, parent, -1)},
		})
		node = parent
	}
	b := l.Buckets[u.bucket]
	for j, piece := range b.Pieces {
		if piece.Len() > 0 {
			o.sendAs(gradient(u.bucket, u.use, node, -1), gradient(u.bucket, u.use, node, j), ShardID(b.Rank, j))
		}
	}
}

func (l *lowering) trainShard(o *ops, a ActorID) {
	p, d, _ := a.Rank()
	parts := l.Parts(p, d)
	if len(parts) == 0 {
		return
	}
	l.begin(o, a)
	l.offerState(o, a)
	square := Op{Kind: SquareNorm, Writes: []Value{norm(p, d)}}
	for _, part := range parts {
		b := part.Bucket
		op := Op{Kind: Reduce, Bucket: b, Writes: []Value{reduced(b, d)}}
		for use, layer := range l.Model.Buckets()[b].Uses {
			for e := range l.degree() {
				for _, node := range Cover(Share(l.Train, e), len(l.Train)) {
					v := gradient(b, use, node, d)
					o.receive(v, StageID(rankOf(l.Stages, layer), e))
					op.Reads = append(op.Reads, v)
				}
			}
		}
		o.add(op)
		if l.mirrored(p, d) {
			o.send(reduced(b, d), MirrorID(p, d))
		}
		square.Reads = append(square.Reads, reduced(b, d))
	}
	o.add(square)
	o.send(norm(p, d), Trainer)
	o.receive(verdict(), Trainer)
	for _, part := range parts {
		b := part.Bucket
		o.add(Op{Kind: Update, Bucket: b, Reads: []Value{reduced(b, d), verdict()}, Writes: []Value{params(b, d)}})
		l.publish(o, b, d)
	}
}

// trainMirror: the mirror gets what the shard updates its state with, and applies it when the step has committed.
func (l *lowering) trainMirror(o *ops, a ActorID) {
	p, d, _ := a.Rank()
	l.begin(o, a)
	l.offerState(o, a)
	hold := Op{Kind: Hold}
	for _, part := range l.Parts(p, d) {
		v := reduced(part.Bucket, d)
		o.receive(v, ShardID(p, d))
		hold.Reads = append(hold.Reads, v)
	}
	o.receive(verdict(), Trainer)
	hold.Reads = append(hold.Reads, verdict())
	o.add(hold)
}
