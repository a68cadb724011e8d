package plan

import (
	"fmt"
	"slices"
)

// task is a piece of work that is due exactly once in a phase, at one actor. at are what it is
// about: layer and micro-batch of F, B and W; the micro-batch of Feed; bucket and piece of Reduce
// and Update; the bucket of Load.
type task struct {
	kind  OpKind
	actor ActorID
	at    [2]int
}

func (t task) String() string {
	switch t.kind {
	case Forward, BackwardInput, BackwardWeight:
		return fmt.Sprintf("%s of layer %d micro-batch %d", t.kind, t.at[0], t.at[1])
	case Feed:
		return fmt.Sprintf("feed of micro-batch %d", t.at[0])
	case Reduce, Update:
		return fmt.Sprintf("%s of bucket %d piece %d", t.kind, t.at[0], t.at[1])
	case Load:
		return fmt.Sprintf("load of bucket %d", t.at[0])
	}
	return t.kind.String()
}

// checkWork proves that every operation is what its kind says and that all that is due is done once.
func (c *checker) checkWork() error {
	due := c.due()
	index := make(map[task]bool, len(due))
	for _, t := range due {
		index[t] = true
	}
	done := make(map[task]int, len(due))
	for _, a := range c.pl.Actors {
		chunks := map[int]Range{}
		finished := false
		for i := range c.program(a.ID).Ops {
			op := &c.program(a.ID).Ops[i]
			tasks, err := c.tasks(a.ID, i, op, chunks)
			if err != nil {
				return err
			}
			for _, t := range tasks {
				if !index[t] {
					return c.errorf(a.ID, i, "%s is not due at %s", t, a.ID)
				}
				if before, ok := done[t]; ok {
					return c.errorf(a.ID, i, "%s is done by operation %d already", t, before)
				}
				done[t] = i
			}
			if c.phase == RecoverPhase && op.Kind != Receive && op.Kind != Load && op.Kind != Restore {
				return c.errorf(a.ID, i, "is not what recovers an actor; receive, load and restore are legal there")
			}
			if finished && op.Kind != Send {
				return c.errorf(a.ID, i, "comes after the finish; only the send of the report is legal there")
			}
			finished = finished || op.Kind == Finish
		}
	}
	for _, t := range due {
		if _, ok := done[t]; !ok {
			return fmt.Errorf("plan: %s, %s: %s is due, but no operation does it", c.phase, t.actor, t)
		}
	}
	return nil
}

// due lists the work of the phase.
func (c *checker) due() []task {
	var due []task
	add := func(k OpKind, a ActorID, at ...int) {
		t := task{kind: k, actor: a}
		copy(t.at[:], at)
		due = append(due, t)
	}
	pl, degree := c.pl, c.pl.Job.Layout.Data
	compute := map[Phase][]OpKind{EvaluatePhase: {Forward}, TrainPhase: {Forward, BackwardInput, BackwardWeight}}[c.phase]
	for _, m := range c.batches {
		add(Feed, Trainer, m.Index)
		for p, s := range pl.Stages {
			for layer := s.Lo; layer < s.Hi; layer++ {
				for _, k := range compute {
					add(k, StageID(p, m.Data), layer, m.Index)
				}
			}
		}
	}
	if c.phase == InitPhase || c.phase == RecoverPhase || c.phase == TrainPhase {
		for p, s := range pl.Stages {
			for d := range degree {
				for b, bucket := range pl.Model.Buckets() {
					if slices.ContainsFunc(bucket.Uses, func(layer int) bool { return layer >= s.Lo && layer < s.Hi }) {
						add(Load, StageID(p, d), b)
					}
				}
			}
		}
	}
	for p := range pl.Stages {
		for d := range degree {
			owned := c.owned(p, d)
			if len(owned) == 0 {
				continue
			}
			mirrored := pl.Job.Supervisor.Mirror
			kept := []ActorID{ShardID(p, d)}
			if mirrored {
				kept = append(kept, MirrorID(p, d))
			}
			for _, a := range kept {
				switch {
				case c.phase == InitPhase || c.phase == RecoverPhase && mirrored:
					add(Restore, a)
				case c.phase != RecoverPhase:
					add(Advance, a)
				}
			}
			switch c.phase {
			case SnapshotPhase:
				add(Collect, ShardID(p, d))
			case TrainPhase:
				if mirrored {
					add(Hold, MirrorID(p, d))
				}
				add(SquareNorm, ShardID(p, d))
				for _, b := range owned {
					add(Reduce, ShardID(p, d), b, d)
					add(Update, ShardID(p, d), b, d)
				}
			}
		}
	}
	if c.phase == InitPhase && pl.Resume && len(c.shards()) > 0 {
		add(Collect, Trainer)
	}
	if c.phase == TrainPhase {
		add(Decide, Trainer)
	}
	if c.phase != RecoverPhase {
		for _, a := range pl.Actors {
			add(Finish, a.ID)
		}
	}
	return due
}

// owned are the buckets of which shard (p, d) has a piece.
func (c *checker) owned(p, d int) []int {
	var owned []int
	for b, plan := range c.pl.Buckets {
		if plan.Rank == p && plan.Pieces[d].Len() > 0 {
			owned = append(owned, b)
		}
	}
	return owned
}

// pieces are the Parameters of shard (p, d).
func (c *checker) pieces(p, d int) []Value {
	var pieces []Value
	for _, b := range c.owned(p, d) {
		pieces = append(pieces, params(b, d))
	}
	return pieces
}

// shards are the ranks of the shards that own something.
func (c *checker) shards() [][2]int {
	var shards [][2]int
	for p := range c.pl.Stages {
		for d := range c.pl.Job.Layout.Data {
			if len(c.owned(p, d)) > 0 {
				shards = append(shards, [2]int{p, d})
			}
		}
	}
	return shards
}

// tasks are what an operation does, after a check of its reads and writes. chunks are the layers
// of the actor's chunks as far as they are known.
func (c *checker) tasks(a ActorID, i int, op *Op, chunks map[int]Range) ([]task, error) {
	var reads, writes []Value
	var tasks []task
	do := func(at ...int) {
		t := task{kind: op.Kind, actor: a}
		copy(t.at[:], at)
		tasks = append(tasks, t)
	}
	p, d, _ := a.Rank()
	switch op.Kind {
	case Receive:
		if len(op.Writes) != 1 || len(op.Reads) != 0 {
			return nil, c.errorf(a, i, "a receive writes one value and reads none")
		}
		return nil, nil
	case Send:
		if len(op.Reads) != 1 || len(op.Writes) != 0 {
			return nil, c.errorf(a, i, "a send reads one value and writes none")
		}
		whole := op.As
		if op.As.Kind == Gradient {
			whole.Piece = op.Reads[0].Piece
		}
		if whole != op.Reads[0] {
			return nil, c.errorf(a, i, "reads %s, which is not the value that it sends", op.Reads[0])
		}
		return nil, nil
	case Feed:
		reads, writes = nil, []Value{tokens(op.Micro), targets(op.Micro)}
		do(op.Micro)
	case Forward, BackwardInput, BackwardWeight:
		if op.Lo < 0 || op.Hi <= op.Lo || op.Hi > len(c.pl.Model.Layers) {
			return nil, c.errorf(a, i, "its layers are [%d,%d); the model has %d", op.Lo, op.Hi, len(c.pl.Model.Layers))
		}
		if known, ok := chunks[op.Chunk]; ok && known != (Range{op.Lo, op.Hi}) {
			return nil, c.errorf(a, i, "its chunk %d has layers [%d,%d) elsewhere", op.Chunk, known.Lo, known.Hi)
		}
		chunks[op.Chunk] = Range{op.Lo, op.Hi}
		reads, writes = c.compute(op)
		for layer := op.Lo; layer < op.Hi; layer++ {
			do(layer, op.Micro)
		}
	case Add:
		return nil, c.checkAdd(a, i, op)
	case Reduce:
		do(op.Bucket, d)
		if op.Bucket < 0 || op.Bucket >= len(c.pl.Buckets) {
			return nil, c.errorf(a, i, "there is no bucket %d", op.Bucket)
		}
		if err := c.checkReduce(a, i, op, d); err != nil {
			return nil, err
		}
		reads, writes = op.Reads, []Value{reduced(op.Bucket, d)}
	case SquareNorm:
		for _, b := range c.owned(p, d) {
			reads = append(reads, reduced(b, d))
		}
		writes = []Value{norm(p, d)}
		do()
	case Decide:
		for _, m := range c.batches {
			reads = append(reads, loss(m.Index))
		}
		for _, s := range c.shards() {
			reads = append(reads, norm(s[0], s[1]))
		}
		writes = []Value{verdict()}
		do()
	case Update:
		reads, writes = []Value{reduced(op.Bucket, d), verdict()}, []Value{params(op.Bucket, d)}
		do(op.Bucket, d)
	case Load:
		if op.Bucket < 0 || op.Bucket >= len(c.pl.Buckets) {
			return nil, c.errorf(a, i, "there is no bucket %d", op.Bucket)
		}
		for j, piece := range c.pl.Buckets[op.Bucket].Pieces {
			if piece.Len() > 0 {
				reads = append(reads, params(op.Bucket, j))
			}
		}
		writes = []Value{params(op.Bucket, -1)}
		do(op.Bucket)
	case Restore:
		if c.pl.Resume || c.phase == RecoverPhase {
			reads = []Value{state(p, d)}
		}
		if c.phase == InitPhase && a.Role() == "shard" {
			writes = c.pieces(p, d)
		}
		do()
	case Advance:
		if (a.Role() == "mirror") == c.pl.Job.Supervisor.Mirror {
			for _, v := range c.pieces(p, d) {
				writes = append(writes, before(v.Index, v.Piece))
			}
		}
		do()
	case Hold:
		for _, b := range c.owned(p, d) {
			reads = append(reads, reduced(b, d))
		}
		reads = append(reads, verdict())
		do()
	case Offer:
		// It is the value in Reads, or one that it makes itself.
		if len(op.Reads) > 0 {
			reads = []Value{op.As}
			if op.As.Kind == Parameters {
				reads = []Value{before(op.As.Index, op.As.Piece)}
			}
		} else {
			writes = []Value{op.As}
		}
	case Collect:
		writes = []Value{state(p, d)}
		if a == Trainer {
			writes = nil
			for _, s := range c.shards() {
				writes = append(writes, state(s[0], s[1]))
			}
		}
		do()
	case Finish:
		writes = []Value{report(c.actors[a])}
		if a == Trainer {
			reads = c.told()
		}
		do()
	default:
		return nil, c.errorf(a, i, "there is no such kind of operation")
	}
	if !slices.Equal(op.Reads, reads) {
		return nil, c.errorf(a, i, "reads %s; it should read %s", values(op.Reads), values(reads))
	}
	if !slices.Equal(op.Writes, writes) {
		return nil, c.errorf(a, i, "writes %s; it should write %s", values(op.Writes), values(writes))
	}
	return tasks, nil
}

// told is what the trainer knows when its program ends.
func (c *checker) told() []Value {
	var told []Value
	for _, m := range c.batches {
		told = append(told, loss(m.Index))
	}
	if c.phase == SnapshotPhase {
		for _, s := range c.shards() {
			told = append(told, state(s[0], s[1]))
		}
	}
	for i := 1; i < len(c.pl.Actors); i++ {
		told = append(told, report(i))
	}
	return told
}

// compute is what F, B and W of a chunk read and write.
func (c *checker) compute(op *Op) (reads, writes []Value) {
	m, last := op.Micro, op.Hi == len(c.pl.Model.Layers)
	switch op.Kind {
	case Forward:
		needTokens, needTargets := false, false
		for layer := op.Lo; layer < op.Hi; layer++ {
			for _, s := range c.pl.Model.Layers[layer].Segments {
				needTokens = needTokens || s.Spec().Tokens
				needTargets = needTargets || s.Spec().Targets
			}
		}
		if op.Lo > 0 {
			reads = append(reads, activation(op.Lo, m))
		}
		if needTokens {
			reads = append(reads, tokens(m))
		}
		if needTargets {
			reads = append(reads, targets(m))
		}
		if c.phase == TrainPhase {
			writes = append(writes, saved(op.Chunk, m))
		}
		if last {
			writes = append(writes, loss(m))
		} else {
			writes = append(writes, activation(op.Hi, m))
		}
	case BackwardInput:
		reads = []Value{saved(op.Chunk, m)}
		if !last {
			reads = append(reads, activGrad(op.Hi, m))
		}
		writes = []Value{stashed(op.Chunk, m)}
		if op.Lo > 0 {
			writes = append(writes, activGrad(op.Lo, m))
		}
	case BackwardWeight:
		reads = []Value{saved(op.Chunk, m), stashed(op.Chunk, m)}
		for b, bucket := range c.pl.Model.Buckets() {
			for use, layer := range bucket.Uses {
				if layer >= op.Lo && layer < op.Hi {
					writes = append(writes, gradient(b, use, Range{m, m + 1}, -1))
				}
			}
		}
	}
	return reads, writes
}
