package optim

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// Skip is the Verdict of a step that commits without an update. Every other one is the factor that clips the gradient.
const Skip = -1.0

// held is what the update of a part in a step is made of.
type held struct {
	gradient device.Slice
	scale    float64
}

// keep takes a reference to a gradient.
func (p *part) keep(g device.Slice, scale float64) {
	g.Retain()
	p.drop()
	p.held = held{g, scale}
}

func (p *part) drop() {
	if !p.held.gradient.IsZero() {
		p.held.gradient.Release()
	}
	p.held = held{}
}

// scratchMost is the most elements of a part whose moments are made at once beside the old ones. It is a
// multiple of plan.NormBlock, so that a cut lies where cuts of shards may lie too.
const scratchMost = 64 * plan.NormBlock

// update publishes the weights of the next step. The state stays as it is until the step has
// committed, since whoever restarts in this step needs it; advance makes the moments.
func (x *Executor) update(k device.Kernels, round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	if err := x.at(round.Step); err != nil {
		return nil, err
	}
	scale, err := x.verdict(k, op.Reads[1], in[1])
	if err != nil {
		return nil, err
	}
	p, err := x.take(op.Reads[0], in[0], scale)
	if err != nil {
		return nil, err
	}
	if scale < 0 {
		return x.publish(op)
	}
	next, err := x.alloc(device.Parameters, device.F32, p.Range.Len())
	if err != nil {
		return nil, err
	}
	n := min(p.Range.Len(), scratchMost)
	scratch, err := x.alloc(device.Workspace, device.F32, n*x.rule.Moments)
	if err != nil {
		next.Release()
		return nil, err
	}
	x.apply(k, round.Step, p, next, scratch)
	scratch.Release()
	out := x.outs.Of(op)
	out.Tensor(0, next)
	return out.List(), nil
}

// hold keeps what the shard updates with.
func (x *Executor) hold(k device.Kernels, round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	if err := x.at(round.Step); err != nil {
		return nil, err
	}
	last := len(op.Reads) - 1
	scale, err := x.verdict(k, op.Reads[last], in[last])
	if err != nil {
		return nil, err
	}
	for i, v := range op.Reads[:last] {
		if _, err := x.take(v, in[i], scale); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// at makes sure that the state is that of a step.
func (x *Executor) at(step int64) error {
	if x.step != step {
		return fmt.Errorf("the state is that of step %d", x.step)
	}
	return nil
}

// verdict is the number in a Verdict.
func (x *Executor) verdict(k device.Kernels, v plan.Value, in machine.Payload) (float64, error) {
	verdict, err := machine.TensorOf(v, in, device.F64, 1)
	if err != nil {
		return 0, err
	}
	k.Download(x.scale[:], verdict)
	return math.Float64frombits(binary.LittleEndian.Uint64(x.scale[:])), nil
}

// take keeps the gradient of a part.
func (x *Executor) take(v plan.Value, in machine.Payload, scale float64) (*part, error) {
	p, err := x.shard.part(v.Index)
	if err != nil {
		return nil, err
	}
	g, err := machine.TensorOf(v, in, device.F32, p.Range.Len())
	if err != nil {
		return nil, err
	}
	p.keep(g, scale)
	return p, nil
}

// advance brings the state to the step of the round. Once a step has committed, nobody needs the state
// before it: weights are still written to new memory, because those of the old are published, and moments in place.
func (x *Executor) advance(k device.Kernels, round plan.Round, op *plan.Op) ([]machine.Payload, error) {
	if x.step != round.Step {
		if err := x.at(round.Step - 1); err != nil {
			return nil, err
		}
		for i := range x.shard.parts {
			if err := x.commit(k, &x.shard.parts[i]); err != nil {
				return nil, err
			}
		}
		x.step = round.Step
	}
	return x.publish(op)
}

func (x *Executor) commit(k device.Kernels, p *part) error {
	if p.held.gradient.IsZero() {
		return fmt.Errorf("bucket %d has no gradient of step %d", p.Bucket, x.step)
	}
	if p.held.scale >= 0 {
		next, err := x.alloc(device.Parameters, device.F32, p.Range.Len())
		if err != nil {
			return err
		}
		x.apply(k, x.step, p, next, device.Slice{})
		p.weights.Release()
		p.weights = next
	}
	p.drop()
	return nil
}

// apply writes the weights that follow, and the moments: in place, or to scratch, whose contents do not matter.
func (x *Executor) apply(k device.Kernels, step int64, p *part, next, scratch device.Slice) {
	b := x.plan.Model.Buckets()[p.Bucket]
	o := x.plan.Job.Train.Optimizer
	for _, r := range p.runs {
		for lo := r.Lo; lo < r.Hi; lo += scratchMost {
			n := min(r.Hi-lo, scratchMost)
			s := Step{
				Next: next.Sub(lo, n), Weights: p.weights.Sub(lo, n), Gradient: p.held.gradient.Sub(lo, n),
				Rate:      LearningRate(x.plan.Job.Train, step),
				Scale:     p.held.scale,
				Number:    int(step) + 1,
				Optimizer: o,
			}
			if b.Params[r.param].Decay {
				s.Decay = o.WeightDecay
			}
			x.moments, x.nextMoments = x.moments[:0], x.nextMoments[:0]
			for i, m := range p.moments {
				m = m.Sub(lo, n)
				x.moments = append(x.moments, m)
				if !scratch.IsZero() {
					m = scratch.Sub(i*n, n)
				}
				x.nextMoments = append(x.nextMoments, m)
			}
			s.Moments, s.NextMoments = x.moments, x.nextMoments
			x.rule.Step(k, s)
		}
	}
}
