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

// next is what becomes of a part when the step has committed: at a shard weights and moments, at a mirror the
// gradient to make them of. With skip it stays as it is. Nobody needs the weights of a mirror before.
type next struct {
	skip     bool
	weights  device.Slice
	moments  []device.Slice
	gradient device.Slice
	scale    float64
}

// drop gives back what a part would have become.
func (p *part) drop() {
	for _, s := range p.next.moments {
		s.Release()
	}
	for _, s := range []device.Slice{p.next.weights, p.next.gradient} {
		if !s.IsZero() {
			s.Release()
		}
	}
	p.next = next{moments: p.next.moments[:0]}
}

// make allocates what a part becomes.
func (x *Executor) make(p *part) error {
	var err error
	if p.next.weights, err = x.alloc(device.Parameters, device.F32, p.Range.Len()); err != nil {
		return err
	}
	for range x.rule.Moments {
		m, err := x.alloc(device.Optimizer, device.F32, p.Range.Len())
		if err != nil {
			return err
		}
		p.next.moments = append(p.next.moments, m)
	}
	return nil
}

// update publishes the weights of the next step. The state stays as it is until the step has committed, since
// whoever restarts in this step needs it; advance puts the next one in its place.
func (x *Executor) update(k device.Kernels, round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	if err := x.at(round.Step); err != nil {
		return nil, err
	}
	scale, err := x.verdict(k, op.Reads[1], in[1])
	if err != nil {
		return nil, err
	}
	p, g, err := x.reduced(op.Reads[0], in[0])
	if err != nil {
		return nil, err
	}
	p.drop()
	if p.next.skip = scale < 0; p.next.skip {
		return x.publish(k, op)
	}
	if err := x.make(p); err != nil {
		return nil, err
	}
	x.apply(k, round.Step, p, p.next.weights, p.next.moments, g, scale)
	w, err := x.published(k, p.next.weights)
	if err != nil {
		return nil, err
	}
	out := x.outs.Of(op)
	out.Tensor(0, w)
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
		p, g, err := x.reduced(v, in[i])
		if err != nil {
			return nil, err
		}
		p.drop()
		g.Retain()
		p.next.gradient, p.next.scale, p.next.skip = g, scale, scale < 0
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

// reduced is the gradient of a part.
func (x *Executor) reduced(v plan.Value, in machine.Payload) (*part, device.Slice, error) {
	p, err := x.shard.part(v.Index)
	if err != nil {
		return nil, device.Slice{}, err
	}
	g, err := machine.TensorOf(v, in, device.F32, p.Range.Len())
	return p, g, err
}

// advance brings the state to the step of the round. Once a step has committed, nobody needs the state
// before it. A mirror writes weights to new memory, because the old ones are published, and moments in place.
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
	return x.publish(k, op)
}

func (x *Executor) commit(k device.Kernels, p *part) error {
	n := &p.next
	switch {
	case n.skip:
	case !n.weights.IsZero():
		p.weights, n.weights = n.weights, p.weights
		p.moments, n.moments = n.moments, p.moments
	case !n.gradient.IsZero():
		w, err := x.alloc(device.Parameters, device.F32, p.Range.Len())
		if err != nil {
			return err
		}
		x.apply(k, x.step, p, w, p.moments, n.gradient, n.scale)
		p.weights, n.weights = w, p.weights
	default:
		return fmt.Errorf("bucket %d has no update of step %d", p.Bucket, x.step)
	}
	p.drop()
	return nil
}

// apply writes the weights and moments that follow on those of a part.
func (x *Executor) apply(k device.Kernels, step int64, p *part, weights device.Slice, moments []device.Slice, gradient device.Slice, scale float64) {
	b := x.plan.Model.Buckets()[p.Bucket]
	o := x.plan.Job.Train.Optimizer
	for _, r := range p.runs {
		s := Step{
			Next: weights.Sub(r.Lo, r.Len()), Weights: p.weights.Sub(r.Lo, r.Len()), Gradient: gradient.Sub(r.Lo, r.Len()),
			Rate:      LearningRate(x.plan.Job.Train, step),
			Scale:     scale,
			Number:    int(step) + 1,
			Optimizer: o,
		}
		if b.Params[r.param].Decay {
			s.Decay = o.WeightDecay
		}
		x.moments, x.nextMoments = x.moments[:0], x.nextMoments[:0]
		for i, m := range p.moments {
			x.moments = append(x.moments, m.Sub(r.Lo, r.Len()))
			x.nextMoments = append(x.nextMoments, moments[i].Sub(r.Lo, r.Len()))
		}
		s.Moments, s.NextMoments = x.moments, x.nextMoments
		x.rule.Step(k, s)
	}
}
