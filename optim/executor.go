package optim

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/allreduce"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
)

// NewMachine returns the logic of a shard: a walker on the programs that the plan has for it.
func NewMachine(p *plan.Plan, id plan.ActorID, options ...machine.Option) *machine.Walker {
	return machine.NewWalker(p, id, options...)
}

// Executor runs the operations of a shard.
type Executor struct {
	plan    *plan.Plan
	device  device.Device
	account *device.Account
	rule    Rule
	shard   shard
}

var _ machine.Executor = (*Executor)(nil)

// NewExecutor returns the executor of a shard. It holds nothing before Init.
func NewExecutor(p *plan.Plan, id plan.ActorID, d device.Device, account *device.Account) (*Executor, error) {
	rank, piece, ok := id.Rank()
	if !ok || id.Role() != "shard" || rank >= len(p.Stages) || piece >= p.Job.Layout.Data {
		return nil, fmt.Errorf("optim: %q is not a shard of %d pipeline ranks and %d data ranks", id, len(p.Stages), p.Job.Layout.Data)
	}
	if d.Float() != device.F32 {
		return nil, fmt.Errorf("optim: weights are kept in %s; device %s works in %s", device.F32, d.Name(), d.Float())
	}
	rule, err := RuleOf(p.Job.Train.Optimizer.Kind)
	if err != nil {
		return nil, err
	}
	return &Executor{plan: p, device: d, account: account, rule: rule, shard: newShard(p, rank, piece)}, nil
}

// Close gives back all that the shard holds. Nothing may run any more.
func (x *Executor) Close() {
	for i := range x.shard.parts {
		x.shard.parts[i].release()
	}
}

func (p *part) release() {
	for _, s := range append(p.moments, p.weights) {
		if !s.IsZero() {
			s.Release()
		}
	}
	p.weights, p.moments = device.Slice{}, nil
}

// Free has nothing to do: no value stays inside a shard.
func (x *Executor) Free(plan.Round, plan.Value) {}

// Run runs Restore, Reduce, SquareNorm, Update and Collect.
func (x *Executor) Run(k device.Kernels, round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	switch op.Kind {
	case plan.Restore:
		return x.restore(k, op, in)
	case plan.Reduce:
		return x.reduce(k, op, in)
	case plan.SquareNorm:
		return x.squareNorm(k, op, in)
	case plan.Update:
		return x.update(k, round, op, in)
	case plan.Collect:
		return x.collect(k)
	}
	return nil, fmt.Errorf("a shard has no operation %s", op)
}

func (x *Executor) alloc(l device.Label, t device.DType, n int) (device.Slice, error) {
	return x.device.Alloc(x.account, l, t, n)
}

// StateLen is the elements of the State of a shard: the weights of its parts, and as many again for each
// moment of the optimizer.
func (x *Executor) StateLen() int { return (1 + x.rule.Moments) * x.shard.elements }

// restore makes weights and moments: from a State, or fresh.
func (x *Executor) restore(k device.Kernels, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	var state device.Slice
	if len(in) > 0 {
		var err error
		if state, err = machine.TensorOf(op.Reads[0], in[0], device.F32, x.StateLen()); err != nil {
			return nil, err
		}
	}
	off := 0
	for i := range x.shard.parts {
		p := &x.shard.parts[i]
		if err := x.allocate(p); err != nil {
			return nil, err
		}
		n := p.Range.Len()
		if state.IsZero() {
			x.initialize(k, p)
			for _, m := range p.moments {
				k.Fill(m, 0)
			}
		} else {
			k.Copy(p.weights, state.Sub(off, n))
			for j, m := range p.moments {
				k.Copy(m, state.Sub((1+j)*x.shard.elements+off, n))
			}
		}
		off += n
	}
	out := make([]machine.Payload, len(op.Writes))
	for i, v := range op.Writes {
		p, err := x.shard.part(v.Index)
		if err != nil {
			return nil, err
		}
		p.weights.Retain()
		out[i] = machine.Tensor{Slice: p.weights}
	}
	return out, nil
}

// allocate makes room for weights and moments in place of what there may be.
func (x *Executor) allocate(p *part) error {
	p.release()
	n := p.Range.Len()
	var err error
	if p.weights, err = x.alloc(device.Parameters, device.F32, n); err != nil {
		return err
	}
	for range x.rule.Moments {
		m, err := x.alloc(device.Optimizer, device.F32, n)
		if err != nil {
			return err
		}
		p.moments = append(p.moments, m)
	}
	return nil
}

// initialize writes fresh weights.
func (x *Executor) initialize(k device.Kernels, p *part) {
	b := x.plan.Model.Buckets()[p.Bucket]
	for _, r := range p.runs {
		values := make([]float32, r.Len())
		model.Initialize(b.Params[r.param], x.plan.Job.Train.Seed, values, r.from)
		bytes := make([]byte, 0, 4*len(values))
		for _, v := range values {
			bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(v))
		}
		k.Upload(p.weights.Sub(r.Lo, r.Len()), bytes)
	}
}

func (x *Executor) reduce(k device.Kernels, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	p, err := x.shard.part(op.Bucket)
	if err != nil {
		return nil, err
	}
	parts := make([]allreduce.Part, len(in))
	for i, v := range op.Reads {
		g, err := machine.TensorOf(v, in[i], device.F32, p.Range.Len())
		if err != nil {
			return nil, err
		}
		parts[i] = allreduce.Part{Use: v.Use, Node: plan.Range{Lo: v.Lo, Hi: v.Hi}, Slice: g}
	}
	sum, err := allreduce.Reduce(k, len(x.plan.Train), parts, func() (device.Slice, error) {
		return x.alloc(device.Gradients, device.F32, p.Range.Len())
	})
	if err != nil {
		return nil, err
	}
	return []machine.Payload{machine.Tensor{Slice: sum}}, nil
}

func (x *Executor) squareNorm(k device.Kernels, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	out, err := x.alloc(device.Messages, device.F64, x.shard.blocks)
	if err != nil {
		return nil, err
	}
	off := 0
	for i, v := range op.Reads {
		p, err := x.shard.part(v.Index)
		if err != nil {
			return nil, err
		}
		g, err := machine.TensorOf(v, in[i], device.F32, p.Range.Len())
		if err != nil {
			return nil, err
		}
		for _, r := range p.runs {
			k.SumSquares(out.Sub(off+r.block, blocksOf(r.Len())), g.Sub(r.Lo, r.Len()), plan.NormBlock)
		}
		off += len(p.Blocks)
	}
	return []machine.Payload{machine.Tensor{Slice: out}}, nil
}

// update makes the weights of the next step in new memory, and the moments in place.
func (x *Executor) update(k device.Kernels, round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	p, err := x.shard.part(op.Bucket)
	if err != nil {
		return nil, err
	}
	n := p.Range.Len()
	g, err := machine.TensorOf(op.Reads[0], in[0], device.F32, n)
	if err != nil {
		return nil, err
	}
	verdict, err := machine.TensorOf(op.Reads[1], in[1], device.F64, 1)
	if err != nil {
		return nil, err
	}
	var scale [8]byte
	k.Download(scale[:], verdict)
	next, err := x.alloc(device.Parameters, device.F32, n)
	if err != nil {
		return nil, err
	}
	b := x.plan.Model.Buckets()[p.Bucket]
	o := x.plan.Job.Train.Optimizer
	for _, r := range p.runs {
		s := Step{
			Next: next.Sub(r.Lo, r.Len()), Weights: p.weights.Sub(r.Lo, r.Len()), Gradient: g.Sub(r.Lo, r.Len()),
			Rate:      LearningRate(x.plan.Job.Train, round.Step),
			Scale:     math.Float64frombits(binary.LittleEndian.Uint64(scale[:])),
			Number:    int(round.Step) + 1,
			Optimizer: o,
		}
		if b.Params[r.param].Decay {
			s.Decay = o.WeightDecay
		}
		for _, m := range p.moments {
			s.Moments = append(s.Moments, m.Sub(r.Lo, r.Len()))
		}
		x.rule.Step(k, s)
	}
	p.weights.Release()
	p.weights = next
	next.Retain()
	return []machine.Payload{machine.Tensor{Slice: next}}, nil
}

// collect copies the state: the weights of all parts, then each moment of all parts.
func (x *Executor) collect(k device.Kernels) ([]machine.Payload, error) {
	out, err := x.alloc(device.Messages, device.F32, x.StateLen())
	if err != nil {
		return nil, err
	}
	off := 0
	for i := range x.shard.parts {
		p := &x.shard.parts[i]
		n := p.Range.Len()
		k.Copy(out.Sub(off, n), p.weights)
		for j, m := range p.moments {
			k.Copy(out.Sub((1+j)*x.shard.elements+off, n), m)
		}
		off += n
	}
	return []machine.Payload{machine.Tensor{Slice: out}}, nil
}
