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

// NewMachine returns the logic of a shard or mirror: a walker on the programs that the plan has for it.
func NewMachine(p *plan.Plan, id plan.ActorID, options ...machine.Option) *machine.Walker {
	return machine.NewWalker(p, id, options...)
}

// Executor runs the operations of a shard or of its mirror. Both hold the same state, with the same bits.
type Executor struct {
	plan    *plan.Plan
	device  device.Device
	account *device.Account
	rule    Rule
	shard   shard
	// store is what stages store weights in, and so what is published.
	store device.DType
	// step is the number of updates that the state has had, by the rounds; see advance.
	step int64

	// For operations that take nothing from the Go heap.
	outs                 machine.Outs
	sums                 map[*plan.Op]*allreduce.Sum
	parts                []device.Slice
	moments, nextMoments []device.Slice
	scale                [8]byte
}

var _ machine.Executor = (*Executor)(nil)

// NewExecutor returns the executor of a shard or mirror. It holds nothing before Init.
func NewExecutor(p *plan.Plan, id plan.ActorID, d device.Device, account *device.Account) (*Executor, error) {
	rank, piece, ok := id.Rank()
	if !ok || id.Role() != "shard" && id.Role() != "mirror" || rank >= len(p.Stages) || piece >= p.Job.Layout.Data {
		return nil, fmt.Errorf("optim: %q is no shard or mirror of %d pipeline ranks and %d data ranks", id, len(p.Stages), p.Job.Layout.Data)
	}
	if d.Float() != device.F32 {
		return nil, fmt.Errorf("optim: weights are kept in %s; device %s works in %s", device.F32, d.Name(), d.Float())
	}
	rule, err := RuleOf(p.Job.Train.Optimizer.Kind)
	if err != nil {
		return nil, err
	}
	return &Executor{plan: p, device: d, account: account, rule: rule, store: p.Job.Train.Stored(device.F32), shard: newShard(p, rank, piece), sums: map[*plan.Op]*allreduce.Sum{}}, nil
}

// Close gives back all that is held. Nothing may run any more.
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
	p.drop()
}

// Free has nothing to do: no value that a program names stays inside.
func (x *Executor) Free(plan.Round, plan.Value) {}

// Run runs Restore, Reduce, SquareNorm, Update, Hold, Advance, Collect and Offer.
func (x *Executor) Run(k device.Kernels, round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	switch op.Kind {
	case plan.Restore:
		return x.restore(k, round, op, in)
	case plan.Reduce:
		return x.reduce(k, op, in)
	case plan.SquareNorm:
		return x.squareNorm(k, op, in)
	case plan.Update:
		return x.update(k, round, op, in)
	case plan.Hold:
		return x.hold(k, round, op, in)
	case plan.Advance:
		return x.advance(k, round, op)
	case plan.Collect, plan.Offer:
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
func (x *Executor) restore(k device.Kernels, round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
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
	x.step = round.Step
	return x.publish(k, op)
}

// publish hands out the weights of the Parameters that an operation writes.
func (x *Executor) publish(k device.Kernels, op *plan.Op) ([]machine.Payload, error) {
	out := x.outs.Of(op)
	for i, v := range op.Writes {
		p, err := x.shard.part(v.Index)
		if err != nil {
			return nil, err
		}
		w, err := x.published(k, p.weights)
		if err != nil {
			for _, p := range out.List()[:i] {
				p.Release()
			}
			return nil, err
		}
		out.Tensor(i, w)
	}
	return out.List(), nil
}

// published is what stages get of weights: the master copy itself, or a rounded one of what they store. The caller owns it.
func (x *Executor) published(k device.Kernels, weights device.Slice) (device.Slice, error) {
	if x.store == device.F32 {
		weights.Retain()
		return weights, nil
	}
	w, err := x.alloc(device.Messages, x.store, weights.Len)
	if err == nil {
		k.Convert(w, weights)
	}
	return w, err
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
	order, err := x.sum(op)
	if err != nil {
		return nil, err
	}
	x.parts = x.parts[:0]
	for i, v := range op.Reads {
		g, err := machine.TensorOf(v, in[i], device.F32, p.Range.Len())
		if err != nil {
			return nil, err
		}
		x.parts = append(x.parts, g)
	}
	sum, err := order.Of(k, x.parts, func() (device.Slice, error) {
		return x.alloc(device.Gradients, device.F32, p.Range.Len())
	})
	if err != nil {
		return nil, err
	}
	out := x.outs.Of(op)
	out.Tensor(0, sum)
	return out.List(), nil
}

// sum is the order in which a Reduce adds.
func (x *Executor) sum(op *plan.Op) (*allreduce.Sum, error) {
	if s := x.sums[op]; s != nil {
		return s, nil
	}
	parts := make([]allreduce.Part, len(op.Reads))
	for i, v := range op.Reads {
		parts[i] = allreduce.Part{Use: v.Use, Node: plan.Range{Lo: v.Lo, Hi: v.Hi}}
	}
	s, err := allreduce.NewSum(len(x.plan.Train), parts)
	if err == nil {
		x.sums[op] = s
	}
	return s, err
}

func (x *Executor) squareNorm(k device.Kernels, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	norms, err := x.alloc(device.Messages, device.F64, x.shard.blocks)
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
			k.SumSquares(norms.Sub(off+r.block, blocksOf(r.Len())), g.Sub(r.Lo, r.Len()), plan.NormBlock)
		}
		off += len(p.Blocks)
	}
	out := x.outs.Of(op)
	out.Tensor(0, norms)
	return out.List(), nil
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
