package stage

import (
	"fmt"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/allreduce"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// NewMachine returns the logic of a stage: a walker on the programs that the plan has for it.
func NewMachine(p *plan.Plan, id plan.ActorID, options ...machine.Option) *machine.Walker {
	return machine.NewWalker(p, id, options...)
}

// Executor runs the operations of a stage.
type Executor struct {
	plan    *plan.Plan
	id      plan.ActorID
	device  device.Device
	account *device.Account
	weights *Weights
	chunks  []*Chunk
	// tapes is what is kept, by chunk and micro-batch.
	tapes [][]*Tape

	// For operations that allocate nothing on the Go heap.
	outs      machine.Outs
	gradients []gradient
	gradient  func(bucket, use int) device.Slice // of gradients
	pieces    []plan.Range
	parts     []device.Slice
}

// gradient is the flat gradient of a use of a bucket.
type gradient struct {
	bucket, use int
	slice       device.Slice
}

var _ machine.Executor = (*Executor)(nil)

// NewExecutor allocates the parameters of a stage. Init fills them.
func NewExecutor(p *plan.Plan, id plan.ActorID, d device.Device, account *device.Account) (*Executor, error) {
	rank, _, ok := id.Rank()
	if !ok || id.Role() != "stage" || rank >= len(p.Stages) {
		return nil, fmt.Errorf("stage: %q is not a stage of a pipeline of %d", id, len(p.Stages))
	}
	w, err := NewWeights(d, p.Job.Train.Stored(d.Float()), account, p.Model, p.Stages[rank])
	if err != nil {
		return nil, err
	}
	x := &Executor{plan: p, id: id, device: d, account: account, weights: w}
	x.gradient = func(bucket, use int) device.Slice {
		for _, g := range x.gradients {
			if g.bucket == bucket && g.use == use {
				return g.slice
			}
		}
		panic(fmt.Sprintf("%s: no gradient of use %d of bucket %d is asked for", id, use, bucket))
	}
	return x, nil
}

// Close gives back all that the stage holds. Nothing may run any more.
func (x *Executor) Close() {
	for _, chunk := range x.tapes {
		for i, t := range chunk {
			if t != nil {
				t.ReleaseSaved()
				t.ReleaseStash()
				chunk[i] = nil
			}
		}
	}
	x.weights.Release()
}

// Run runs Forward, BackwardInput, BackwardWeight, Add and Load.
func (x *Executor) Run(k device.Kernels, round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	switch op.Kind {
	case plan.Forward:
		return x.forward(k, round, op, in)
	case plan.BackwardInput:
		return x.backwardInput(k, op, in)
	case plan.BackwardWeight:
		return x.backwardWeight(k, op)
	case plan.Add:
		return x.add(k, op, in)
	case plan.Load:
		return x.load(k, op, in)
	}
	return nil, fmt.Errorf("a stage has no operation %s", op)
}

// Free ends what a chunk keeps for a micro-batch.
func (x *Executor) Free(_ plan.Round, v plan.Value) {
	if v.Kind != plan.Saved && v.Kind != plan.Stashed {
		return
	}
	place := x.place(v)
	t := *place
	if t == nil {
		return
	}
	if v.Kind == plan.Saved {
		t.ReleaseSaved()
	} else {
		t.ReleaseStash()
	}
	if !t.saved && !t.stashed {
		*place = nil
	}
}

// place is where the tape of a saved or stashed value is kept.
func (x *Executor) place(v plan.Value) **Tape {
	for len(x.tapes) <= v.Index {
		x.tapes = append(x.tapes, nil)
	}
	for len(x.tapes[v.Index]) <= v.Lo {
		x.tapes[v.Index] = append(x.tapes[v.Index], nil)
	}
	return &x.tapes[v.Index][v.Lo]
}

// chunk is the one of the layers of op.
func (x *Executor) chunk(op *plan.Op) *Chunk {
	layers := plan.Range{Lo: op.Lo, Hi: op.Hi}
	for _, c := range x.chunks {
		if c.layers == layers {
			return c
		}
	}
	c := NewChunk(x.weights, layers)
	x.chunks = append(x.chunks, c)
	return c
}

func (x *Executor) forward(k device.Kernels, round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	batches, training := x.plan.Train, true
	if round.Phase == plan.EvaluatePhase {
		batches, training = x.plan.Held, false
	}
	mb := batches[op.Micro]
	context := x.plan.Model.Context
	b := MicroBatch{
		Rows: mb.Rows, Context: context,
		Seed: x.plan.Job.Train.Seed, Step: round.Step, Sample: mb.Sample,
		Training:  training,
		LossScale: 1 / float64(plan.Rows(batches)*context),
	}
	c := x.chunk(op)
	var input device.Slice
	for i, v := range op.Reads {
		var err error
		switch v.Kind {
		case plan.Activation:
			n := c.segments[0].spec.In[0].Len(b.Rows, context)
			input, err = machine.TensorOf(v, in[i], x.weights.store, n)
		case plan.Tokens:
			b.Tokens, err = machine.TensorOf(v, in[i], device.I32, b.Rows*context)
		case plan.Targets:
			b.Targets, err = machine.TensorOf(v, in[i], device.I32, b.Rows*context)
		}
		if err != nil {
			return nil, err
		}
	}
	y, t, err := c.Forward(k, b, input)
	if err != nil {
		return nil, err
	}
	out := x.outs.Of(op)
	for i, v := range op.Writes {
		switch v.Kind {
		case plan.Saved:
			*x.place(v) = t
		case plan.Activation:
			out.Tensor(i, y)
		case plan.Loss:
			sum, err := x.device.Alloc(x.account, device.Messages, device.F64, 1)
			if err != nil {
				y.Release()
				return nil, err
			}
			k.Sum(sum, y)
			y.Release()
			out.Tensor(i, sum)
		}
	}
	return out.List(), nil
}

func (x *Executor) backwardInput(k device.Kernels, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	t, err := x.tape(op)
	if err != nil {
		return nil, err
	}
	var dout device.Slice
	for i, v := range op.Reads {
		if v.Kind == plan.ActivationGrad {
			n := t.chunk.segments[len(t.chunk.segments)-1].spec.Out[0].Len(t.batch.Rows, t.batch.Context)
			if dout, err = machine.TensorOf(v, in[i], x.weights.store, n); err != nil {
				return nil, err
			}
		}
	}
	din, err := t.chunk.BackwardInput(k, t, dout)
	if err != nil {
		return nil, err
	}
	out := x.outs.Of(op)
	for i, v := range op.Writes {
		if v.Kind == plan.ActivationGrad {
			out.Tensor(i, din)
		}
	}
	return out.List(), nil
}

func (x *Executor) backwardWeight(k device.Kernels, op *plan.Op) ([]machine.Payload, error) {
	t, err := x.tape(op)
	if err != nil {
		return nil, err
	}
	if !t.stashed {
		return nil, fmt.Errorf("%s is not there", op.Reads[1])
	}
	out := x.outs.Of(op)
	fail := func(err error) ([]machine.Payload, error) {
		for _, g := range x.gradients {
			g.slice.Release()
		}
		return nil, err
	}
	x.gradients = x.gradients[:0]
	for i, v := range op.Writes {
		g, err := x.device.Alloc(x.account, device.Gradients, x.device.Float(), x.plan.Model.Buckets()[v.Index].Len)
		if err != nil {
			return fail(fmt.Errorf("%s: %w", v, err))
		}
		x.gradients = append(x.gradients, gradient{v.Index, v.Use, g})
		out.Tensor(i, g)
	}
	if err := t.chunk.BackwardWeight(k, t, x.gradient); err != nil {
		return fail(err)
	}
	return out.List(), nil
}

func (x *Executor) tape(op *plan.Op) (*Tape, error) {
	for _, v := range op.Reads {
		if v.Kind == plan.Saved {
			if t := *x.place(v); t != nil && t.saved {
				return t, nil
			}
			return nil, fmt.Errorf("%s is not there", v)
		}
	}
	return nil, fmt.Errorf("%s does not read what its forward pass saved", op)
}

// add sums two nodes of the gradient tree in the memory of the lower one, which ends with it.
func (x *Executor) add(k device.Kernels, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	n := x.plan.Model.Buckets()[op.Bucket].Len
	lower, err := machine.TensorOf(op.Reads[0], in[0], x.device.Float(), n)
	if err != nil {
		return nil, err
	}
	upper, err := machine.TensorOf(op.Reads[1], in[1], x.device.Float(), n)
	if err != nil {
		return nil, err
	}
	k.Add(lower, lower, upper)
	lower.Retain()
	out := x.outs.Of(op)
	out.Put(0, in[0])
	return out.List(), nil
}

// load gathers the pieces of a bucket into its flat vector.
func (x *Executor) load(k device.Kernels, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	x.pieces, x.parts = x.pieces[:0], x.parts[:0]
	for i, v := range op.Reads {
		piece := x.plan.Buckets[op.Bucket].Pieces[v.Piece]
		part, err := machine.TensorOf(v, in[i], x.weights.store, piece.Len())
		if err != nil {
			return nil, err
		}
		x.pieces, x.parts = append(x.pieces, piece), append(x.parts, part)
	}
	allreduce.Gather(k, x.weights.Vector(op.Bucket), x.pieces, x.parts)
	return x.outs.Of(op).List(), nil
}
