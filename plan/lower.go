package plan

import (
	"slices"

	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan/schedule"
)

// New resolves a job for a model: partition, pieces, micro-batches, placement, the programs of
// every actor in every phase, and the prediction. It checks the sections train and layout as
// Validate does, and not model and data, since the model is given: a model of the caller's own needs
// no model section. It ends with Check, so a Plan that is returned is proved. An error about the job is a *JobError.
func New(job *Job, m *model.Model, opt Options) (*Plan, error) {
	j := *job
	j.Layout.Stages, j.Layout.Shares = slices.Clone(job.Layout.Stages), slices.Clone(job.Layout.Shares)
	if err := first(j.checkTrain(), j.checkOptimizer(), j.checkLayout(), j.checkSums()); err != nil {
		return nil, err
	}
	if opt.Nodes < 0 {
		return nil, bad("nodes", "is %d; 0 and up are legal", opt.Nodes)
	}
	// One stage and its shard in one process end together: whatever a second copy of the state costs, it saves nothing.
	j.Supervisor.Mirror = j.Supervisor.Mirror && (opt.Nodes > 1 || j.Layout.Pipeline*j.Layout.Data > 1)
	stages, err := partition(&j, m)
	if err != nil {
		return nil, err
	}
	pl := &Plan{
		Job:     &j,
		Model:   m,
		Resume:  opt.Resume,
		Stages:  stages,
		Train:   cut(j.Train.Batch, j.Train.MicroBatch, j.shares()),
		Held:    cut(j.Train.Evaluate.Batch, j.Train.MicroBatch, evenShares(ceil(j.Train.Evaluate.Batch, j.Train.MicroBatch), j.Layout.Data)),
		Buckets: pieces(m, stages, j.Layout.Data),
	}
	pl.Actors = place(pl, opt.Nodes)
	l := newLowering(pl)
	for ph, lower := range [Phases]func(ActorID, int) []Op{l.init, l.recover, l.evaluate, l.snapshot, l.train} {
		pl.Programs[ph] = l.programs(Phase(ph), lower)
	}
	pl.Predicted = predict(pl)
	if err := Check(pl); err != nil {
		return nil, err
	}
	return pl, nil
}

// programs are those of all actors in a phase.
func (l *lowering) programs(ph Phase, lower func(ActorID, int) []Op) map[ActorID]*Program {
	programs := make(map[ActorID]*Program, len(l.Actors))
	for i, a := range l.Actors {
		programs[a.ID] = finished(a.ID, ph, lower(a.ID, i))
	}
	return programs
}

// finished is the program of operations that have been lowered.
func finished(a ActorID, ph Phase, ops []Op) *Program {
	free(a, ops)
	return &Program{Actor: a, Phase: ph, Ops: ops}
}

// lowering is what the phases share: a plan whose programs are being made.
type lowering struct {
	*Plan
	order schedule.Schedule
	// active are the pipeline ranks from the first to the last that have layers. Ranks outside do
	// nothing; ranks inside without layers pass activations on.
	active Range
	// tokens and targets say which ranks read them; uses are the ranks that use a bucket, ascending;
	// buckets are those that a rank uses, ascending.
	tokens, targets []bool
	uses, buckets   [][]int
}

func newLowering(pl *Plan) *lowering {
	order, _ := schedule.ByName(pl.Job.Layout.Schedule)
	l := &lowering{
		Plan: pl, order: order, active: Range{-1, 0},
		tokens: make([]bool, len(pl.Stages)), targets: make([]bool, len(pl.Stages)),
		uses: make([][]int, len(pl.Buckets)), buckets: make([][]int, len(pl.Stages)),
	}
	for r, s := range pl.Stages {
		if s.Len() == 0 {
			continue
		}
		if l.active.Lo < 0 {
			l.active.Lo = r
		}
		l.active.Hi = r + 1
		for layer := range span(s) {
			for _, seg := range pl.Model.Layers[layer].Segments {
				sp := seg.Spec()
				l.tokens[r] = l.tokens[r] || sp.Tokens
				l.targets[r] = l.targets[r] || sp.Targets
			}
			for _, b := range pl.Model.LayerBuckets(layer) {
				if !slices.Contains(l.buckets[r], b) {
					l.buckets[r] = append(l.buckets[r], b)
					l.uses[b] = append(l.uses[b], r)
				}
			}
		}
		slices.Sort(l.buckets[r])
	}
	return l
}

// degree is the number of data ranks.
func (l *lowering) degree() int { return l.Job.Layout.Data }

// ops is a program in the making.
type ops []Op

func (o *ops) add(op Op) { *o = append(*o, op) }

func (o *ops) receive(v Value, from ActorID) {
	o.add(Op{Kind: Receive, Peer: from, Writes: []Value{v}})
}

func (o *ops) send(v Value, to ActorID) { o.sendAs(v, v, to) }

func (o *ops) sendAs(v, as Value, to ActorID) {
	o.add(Op{Kind: Send, Peer: to, As: as, Reads: []Value{v}})
}

// finish ends the program of an actor that reports to the trainer.
func (o *ops) finish(actor int) {
	o.add(Op{Kind: Finish, Writes: []Value{report(actor)}})
	o.send(report(actor), Trainer)
}

// finishTrainer ends the trainer's program with the reports of all others.
func (l *lowering) finishTrainer(o *ops, reads []Value) {
	for i, a := range l.Actors[1:] {
		o.receive(report(i+1), a.ID)
		reads = append(reads, report(i+1))
	}
	o.add(Op{Kind: Finish, Reads: reads, Writes: []Value{report(0)}})
}

// feed makes the batch at the trainer and sends it to the stages that read it. Data ranks take
// turns, so that all of them can start.
func (l *lowering) feed(o *ops, batches []MicroBatch) {
	for i := 0; ; i++ {
		more := false
		for d := range l.degree() {
			share := Share(batches, d)
			if i >= share.Len() {
				continue
			}
			more = true
			m := share.Lo + i
			o.add(Op{Kind: Feed, Micro: m, Writes: []Value{tokens(m), targets(m)}})
			for p := range l.Stages {
				if l.tokens[p] {
					o.send(tokens(m), StageID(p, d))
				}
				if l.targets[p] {
					o.send(targets(m), StageID(p, d))
				}
			}
		}
		if !more {
			return
		}
	}
}

// losses receives the loss of each micro-batch from the last stage that has layers.
func (l *lowering) losses(o *ops, batches []MicroBatch) []Value {
	var values []Value
	for _, b := range batches {
		o.receive(loss(b.Index), StageID(l.active.Hi-1, b.Data))
		values = append(values, loss(b.Index))
	}
	return values
}

// forward lowers F of one micro-batch at a stage. save says whether a backward pass will follow.
func (l *lowering) forward(o *ops, p, d, m int, save bool) {
	s := l.Stages[p]
	if s.Lo > 0 {
		o.receive(activation(s.Lo, m), StageID(p-1, d))
	}
	if s.Len() == 0 {
		o.send(activation(s.Lo, m), StageID(p+1, d))
		return
	}
	op := Op{Kind: Forward, Lo: s.Lo, Hi: s.Hi, Micro: m}
	if s.Lo > 0 {
		op.Reads = append(op.Reads, activation(s.Lo, m))
	}
	if l.tokens[p] {
		o.receive(tokens(m), Trainer)
		op.Reads = append(op.Reads, tokens(m))
	}
	if l.targets[p] {
		o.receive(targets(m), Trainer)
		op.Reads = append(op.Reads, targets(m))
	}
	if save {
		op.Writes = append(op.Writes, saved(0, m))
	}
	out, to := activation(s.Hi, m), StageID(p+1, d)
	if s.Hi == len(l.Model.Layers) {
		out, to = loss(m), Trainer
	}
	op.Writes = append(op.Writes, out)
	o.add(op)
	o.send(out, to)
}

// load receives the parameters of a stage from those who have the pieces, and loads them.
func (l *lowering) load(o *ops, p int, from func(p, d int) ActorID) {
	for _, b := range l.buckets[p] {
		op := Op{Kind: Load, Bucket: b, Writes: []Value{params(b, -1)}}
		for j, piece := range l.Buckets[b].Pieces {
			if piece.Len() > 0 {
				o.receive(params(b, j), from(l.Buckets[b].Rank, j))
				op.Reads = append(op.Reads, params(b, j))
			}
		}
		o.add(op)
	}
}

// publish sends a shard's piece of a bucket to every stage that uses the bucket.
func (l *lowering) publish(o *ops, b, piece int) {
	for _, p := range l.uses[b] {
		for d := range l.degree() {
			o.send(params(b, piece), StageID(p, d))
		}
	}
}
