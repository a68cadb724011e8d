package supervisor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
)

// Executor runs the operations of the trainer: it feeds tokens, decides on the step, and takes in
// what the other actors report.
type Executor struct {
	Plan    *plan.Plan
	Device  device.Device
	Account *device.Account
	Source  Source
	// State is where weights come from and go to. Without one, a run starts from the seed and keeps nothing.
	State State
	// Finished is told of every round that all actors have finished.
	Finished func(Outcome) error
	// Judge decides on bad batches. Without one, they stop the run.
	Judge *Judge

	window []int32 // one window, reused
	// Of the step that runs.
	norm    float64
	verdict float64
	skipped string
}

// Outcome is what has come of a round.
type Outcome struct {
	Round plan.Round
	// Losses are the sums over the tokens of each micro-batch, by index.
	Losses []float64
	// Norm is that of the gradient of a training step, before it is clipped; Verdict is the factor that clips it, or
	// optim.Skip. Skipped says why the step made no update.
	Norm, Verdict float64
	Skipped       string
	Reports       map[plan.ActorID]machine.Blob
}

// Loss is the mean over tokens, in nats.
func (o Outcome) Loss(tokens int) float64 {
	var sum float64
	for _, l := range o.Losses {
		sum += l
	}
	return sum / float64(tokens)
}

// State is where the weights of a run come from and go to.
type State interface {
	// Restore returns the state of a shard: weights, then first, then second moments of the parts that it owns, in order.
	Restore(shard plan.ActorID) ([]float32, error)
	// Keep is given the state of every shard that owns something, after step steps.
	Keep(ctx context.Context, step int64, state map[plan.ActorID][]float32) error
}

func (e *Executor) Run(k device.Kernels, round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	switch op.Kind {
	case plan.Feed:
		return e.feed(k, round, op)
	case plan.Decide:
		return e.decide(k, round, op, in)
	case plan.Collect:
		return e.restore(k, op)
	case plan.Finish:
		return e.finish(k, round, op, in)
	}
	return nil, fmt.Errorf("the trainer has no operation %s", op)
}

func (e *Executor) Free(plan.Round, plan.Value) {}

// feed makes the tokens and targets of a micro-batch: I32 [rows*context] each.
func (e *Executor) feed(k device.Kernels, round plan.Round, op *plan.Op) ([]machine.Payload, error) {
	context := e.Plan.Model.Context
	batches := e.Plan.Train
	if round.Phase == plan.EvaluatePhase {
		batches = e.Plan.Held
	}
	mb := batches[op.Micro]
	n := mb.Rows * context
	tokens := make([]byte, 4*n)
	targets := make([]byte, 4*n)
	if len(e.window) != context+1 {
		e.window = make([]int32, context+1)
	}
	for r := range mb.Rows {
		if round.Phase == plan.EvaluatePhase {
			e.Source.Held(mb.Sample+r, e.window)
		} else {
			e.Source.Window(round.Step*int64(e.Plan.Job.Train.Batch)+int64(mb.Sample+r), e.window)
		}
		for t := range context {
			if w := e.window[t+1]; w < 0 || int(w) >= e.Plan.Model.Vocab {
				return nil, fmt.Errorf("token %d of the text is outside the model's vocabulary of %d", w, e.Plan.Model.Vocab)
			}
			binary.LittleEndian.PutUint32(tokens[4*(r*context+t):], uint32(e.window[t]))
			binary.LittleEndian.PutUint32(targets[4*(r*context+t):], uint32(e.window[t+1]))
		}
	}
	out := make([]machine.Payload, len(op.Writes))
	for i, v := range op.Writes {
		src := tokens
		if v.Kind == plan.Targets {
			src = targets
		}
		s, err := e.Device.Alloc(e.Account, device.Messages, device.I32, n)
		if err != nil {
			return nil, err
		}
		k.Upload(s, src)
		out[i] = machine.Tensor{Slice: s}
	}
	return out, nil
}

// decide looks at the losses and the gradient norm of the step, and decides whether and how it changes the weights: one
// decision for all shards, before any weight has changed.
func (e *Executor) decide(k device.Kernels, round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	norms := map[plan.ActorID][]float64{}
	broken, sum := "", 0.0
	for i, v := range op.Reads {
		f, err := floats(k, in[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v, err)
		}
		switch v.Kind {
		case plan.Loss:
			if broken == "" && (math.IsNaN(f[0]) || math.IsInf(f[0], 0)) {
				broken = fmt.Sprintf("%s of %s is %v", v, e.sender(round, v), f[0])
			}
			sum += f[0]
		case plan.Norm:
			norms[plan.ShardID(v.Index, v.Piece)] = f
		}
	}
	norm, err := optim.GlobalNorm(e.Plan, norms)
	if bad := (*optim.NonFinite)(nil); errors.As(err, &bad) {
		norm = math.NaN()
		if broken == "" {
			broken = fmt.Sprintf("%v, at %s", bad, bad.Shard)
		}
	} else if err != nil {
		return nil, err
	}
	if e.Judge == nil {
		e.Judge = NewJudge(e.Plan.Job.Supervisor.BadBatch, nil, nil)
	}
	loss := sum / float64(plan.Rows(e.Plan.Train)*e.Plan.Model.Context)
	skip, err := e.Judge.Rule(round.Step, loss, broken)
	if err != nil {
		return nil, err
	}
	e.norm, e.skipped, e.verdict = norm, skip, optim.ClipFactor(norm, e.Plan.Job.Train.Optimizer.Clip)
	if skip != "" {
		e.verdict = optim.Skip
	}
	s, err := e.Device.Alloc(e.Account, device.Messages, device.F64, 1)
	if err != nil {
		return nil, err
	}
	k.Fill(s, e.verdict)
	return []machine.Payload{machine.Tensor{Slice: s}}, nil
}

// sender is the actor that sends a value to the trainer.
func (e *Executor) sender(r plan.Round, v plan.Value) plan.ActorID {
	p, err := e.Plan.ProgramIn(plan.Trainer, r)
	if err != nil {
		return "nobody"
	}
	for _, op := range p.Ops {
		if op.Kind == plan.Receive && op.Writes[0] == v {
			return op.Peer
		}
	}
	return "nobody"
}

// restore reads the state of every shard.
func (e *Executor) restore(k device.Kernels, op *plan.Op) ([]machine.Payload, error) {
	if e.State == nil {
		return nil, errors.New("the plan resumes, and there is no State to resume from")
	}
	out := make([]machine.Payload, len(op.Writes))
	for i, v := range op.Writes {
		state, err := e.State.Restore(plan.ShardID(v.Index, v.Piece))
		if err != nil {
			return nil, err
		}
		s, err := e.Device.Alloc(e.Account, device.Messages, device.F32, len(state))
		if err != nil {
			return nil, err
		}
		k.Upload(s, float32Bytes(state))
		out[i] = machine.Tensor{Slice: s}
	}
	return out, nil
}

// finish takes in what has come of a round.
func (e *Executor) finish(k device.Kernels, round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	var losses []float64
	states := map[plan.ActorID][]float32{}
	reports := map[plan.ActorID]machine.Blob{}
	for i, v := range op.Reads {
		switch v.Kind {
		case plan.Loss:
			f, err := floats(k, in[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v, err)
			}
			losses = append(losses, f[0])
		case plan.State:
			t, ok := in[i].(machine.Tensor)
			if !ok || t.Type != device.F32 {
				return nil, fmt.Errorf("%s is not a tensor of f32", v)
			}
			b := make([]byte, t.Slice.Bytes())
			k.Download(b, t.Slice)
			states[plan.ShardID(v.Index, v.Piece)] = bytesFloat32(b)
		case plan.Report:
			b, ok := in[i].(machine.Blob)
			if !ok {
				return nil, fmt.Errorf("%s is not a blob", v)
			}
			reports[e.Plan.Actors[v.Index].ID] = b
		}
	}
	if round.Phase == plan.SnapshotPhase && e.State != nil {
		if err := e.State.Keep(context.Background(), round.Step, states); err != nil {
			return nil, err
		}
	}
	return make([]machine.Payload, len(op.Writes)), e.Finished(Outcome{
		Round: round, Losses: losses, Norm: e.norm, Verdict: e.verdict, Skipped: e.skipped, Reports: reports,
	})
}

// floats downloads an F64 tensor.
func floats(k device.Kernels, p machine.Payload) ([]float64, error) {
	t, ok := p.(machine.Tensor)
	if !ok || t.Type != device.F64 || t.Len < 1 {
		return nil, fmt.Errorf("it is not a tensor of f64")
	}
	b := make([]byte, t.Slice.Bytes())
	k.Download(b, t.Slice)
	out := make([]float64, t.Len)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return out, nil
}

func float32Bytes(f []float32) []byte {
	b := make([]byte, 4*len(f))
	for i, v := range f {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return b
}

func bytesFloat32(b []byte) []float32 {
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return f
}
