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
	chunks  map[plan.Range]*Chunk
	tapes   map[tapeKey]*tape
}

// tapeKey names what is kept for a micro-batch in a chunk.
type tapeKey struct{ chunk, micro int }

type tape struct {
	*Tape
	chunk          *Chunk
	saved, stashed bool
}

var _ machine.Executor = (*Executor)(nil)

// NewExecutor allocates the parameters of a stage. Init fills them.
func NewExecutor(p *plan.Plan, id plan.ActorID, d device.Device, account *device.Account) (*Executor, error) {
	rank, _, ok := id.Rank()
	if !ok || id.Role() != "stage" || rank >= len(p.Stages) {
		return nil, fmt.Errorf("stage: %q is not a stage of a pipeline of %d", id, len(p.Stages))
	}
	w, err := NewWeights(d, account, p.Model, p.Stages[rank])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	return &Executor{
		plan: p, id: id, device: d, account: account, weights: w,
		chunks: map[plan.Range]*Chunk{}, tapes: map[tapeKey]*tape{},
	}, nil
}

// Close gives back all that the stage holds. Nothing may run any more.
func (x *Executor) Close() {
	for key, t := range x.tapes {
		t.ReleaseSaved()
		t.ReleaseStash()
		delete(x.tapes, key)
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
	key := tapeKey{v.Index, v.Lo}
	t := x.tapes[key]
	if t == nil {
		return
	}
	switch v.Kind {
	case plan.Saved:
		t.ReleaseSaved()
		t.saved = false
	case plan.Stashed:
		t.ReleaseStash()
		t.stashed = false
	default:
		return
	}
	if !t.saved && !t.stashed {
		delete(x.tapes, key)
	}
}

// chunk is the one of the layers of op.
func (x *Executor) chunk(op *plan.Op) *Chunk {
	layers := plan.Range{Lo: op.Lo, Hi: op.Hi}
	c := x.chunks[layers]
	if c == nil {
		c = NewChunk(x.weights, layers)
		x.chunks[layers] = c
	}
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
	var input device.Slice
	for i, v := range op.Reads {
		var err error
		switch v.Kind {
		case plan.Activation:
			n := x.plan.Model.In(op.Lo)[0].Len(b.Rows, context)
			input, err = machine.TensorOf(v, in[i], x.device.Float(), n)
		case plan.Tokens:
			b.Tokens, err = machine.TensorOf(v, in[i], device.I32, b.Rows*context)
		case plan.Targets:
			b.Targets, err = machine.TensorOf(v, in[i], device.I32, b.Rows*context)
		}
		if err != nil {
			return nil, err
		}
	}
	c := x.chunk(op)
	y, t, err := c.Forward(k, b, input)
	if err != nil {
		return nil, err
	}
	out := make([]machine.Payload, len(op.Writes))
	for i, v := range op.Writes {
		switch v.Kind {
		case plan.Saved:
			x.tapes[tapeKey{v.Index, v.Lo}] = &tape{Tape: t, chunk: c, saved: true}
		case plan.Activation:
			out[i] = machine.Tensor{Slice: y}
		case plan.Loss:
			sum, err := x.device.Alloc(x.account, device.Messages, device.F64, 1)
			if err != nil {
				y.Release()
				return nil, err
			}
			k.Sum(sum, y)
			y.Release()
			out[i] = machine.Tensor{Slice: sum}
		}
	}
	return out, nil
}

func (x *Executor) backwardInput(k device.Kernels, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	t, err := x.tape(op)
	if err != nil {
		return nil, err
	}
	var dout device.Slice
	for i, v := range op.Reads {
		if v.Kind == plan.ActivationGrad {
			n := x.plan.Model.Out(op.Hi - 1)[0].Len(t.batch.Rows, t.batch.Context)
			if dout, err = machine.TensorOf(v, in[i], x.device.Float(), n); err != nil {
				return nil, err
			}
		}
	}
	t.stashed = true
	din, err := t.chunk.BackwardInput(k, t.Tape, dout)
	if err != nil {
		return nil, err
	}
	out := make([]machine.Payload, len(op.Writes))
	for i, v := range op.Writes {
		if v.Kind == plan.ActivationGrad {
			out[i] = machine.Tensor{Slice: din}
		}
	}
	return out, nil
}

func (x *Executor) backwardWeight(k device.Kernels, op *plan.Op) ([]machine.Payload, error) {
	t, err := x.tape(op)
	if err != nil {
		return nil, err
	}
	if !t.stashed {
		return nil, fmt.Errorf("%s is not there", op.Reads[1])
	}
	type use struct{ bucket, use int }
	grads := make(map[use]device.Slice, len(op.Writes))
	out := make([]machine.Payload, 0, len(op.Writes))
	fail := func(err error) ([]machine.Payload, error) {
		for _, p := range out {
			p.Release()
		}
		return nil, err
	}
	for _, v := range op.Writes {
		g, err := x.device.Alloc(x.account, device.Gradients, x.device.Float(), x.plan.Model.Buckets()[v.Index].Len)
		if err != nil {
			return fail(fmt.Errorf("%s: %w", v, err))
		}
		grads[use{v.Index, v.Use}] = g
		out = append(out, machine.Tensor{Slice: g})
	}
	if err := t.chunk.BackwardWeight(k, t.Tape, func(b, u int) device.Slice { return grads[use{b, u}] }); err != nil {
		return fail(err)
	}
	return out, nil
}

func (x *Executor) tape(op *plan.Op) (*tape, error) {
	for _, v := range op.Reads {
		if v.Kind == plan.Saved {
			if t := x.tapes[tapeKey{v.Index, v.Lo}]; t != nil {
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
	return []machine.Payload{machine.Tensor{Slice: lower}}, nil
}

// load gathers the pieces of a bucket into its flat vector.
func (x *Executor) load(k device.Kernels, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	pieces := make([]plan.Range, len(in))
	parts := make([]device.Slice, len(in))
	for i, v := range op.Reads {
		pieces[i] = x.plan.Buckets[op.Bucket].Pieces[v.Piece]
		var err error
		if parts[i], err = machine.TensorOf(v, in[i], x.device.Float(), pieces[i].Len()); err != nil {
			return nil, err
		}
	}
	allreduce.Gather(k, x.weights.Vector(op.Bucket), pieces, parts)
	return make([]machine.Payload, len(op.Writes)), nil
}
