package optim_test

import (
	"fmt"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
)

// lines is a segment with parameters and no kernels.
type lines struct{ spec model.Spec }

func (l lines) Spec() model.Spec                           { return l.spec }
func (l lines) Forward(device.Kernels, *model.Call)        {}
func (l lines) BackwardInput(device.Kernels, *model.Call)  {}
func (l lines) BackwardWeight(device.Kernels, *model.Call) {}
func (l lines) Cost(rows, context int) model.Cost {
	return model.Cost{Forward: 1, BackwardInput: 1, BackwardWeight: 1}
}

// ledger is a model with parameters around the size of a block: 3000 elements with a short last
// block, one that is tied over both layers, a small one without decay.
func ledger(t *testing.T) *model.Model {
	t.Helper()
	normal := model.Init{Kind: model.Normal, Std: 0.5}
	tied := model.Param{Name: "tied", Shape: []int{50, 25}, Init: normal, Decay: true}
	x := []model.Port{{Name: "x", PerToken: 1}}
	work := func(int, int) int { return 0 }
	m, err := model.New("ledger", 4, 10, []model.Layer{
		{Name: "first", Segments: []model.Segment{lines{model.Spec{
			Name: "first", Tokens: true, Out: x, Work: work,
			Params: []model.Param{tied, {Name: "big", Shape: []int{3, 1000}, Init: normal, Decay: true}, {Name: "gain", Shape: []int{7}, Init: model.Init{Kind: model.Ones}}},
		}}}},
		{Name: "last", Segments: []model.Segment{lines{model.Spec{
			Name: "last", Targets: true, In: x, Out: []model.Port{{Name: "loss", PerToken: 1, Float: true}}, Work: work,
			Params: []model.Param{{Name: "exact", Shape: []int{2, 1024}, Init: normal, Decay: true}, {Name: "bias", Shape: []int{3}}, tied},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ledgerPlan(t *testing.T, pipeline, data int, kind string) *plan.Plan {
	t.Helper()
	job := plan.Defaults()
	job.Name = "ledger"
	job.Train.Steps, job.Train.Batch, job.Train.MicroBatch, job.Train.Seed = 9, 4, 1, 5
	job.Train.Optimizer = plan.Optimizer{Kind: kind, LR: 0.1, Warmup: 3, Decay: "cosine", WeightDecay: 0.3, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Clip: 1}
	if kind == "sgd" {
		job.Train.Optimizer.Momentum = 0.8
	}
	job.Layout.Pipeline, job.Layout.Data = pipeline, data
	p, err := plan.New(job, ledger(t), plan.Options{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// bench runs shards by hand.
type bench struct {
	t       *testing.T
	plan    *plan.Plan
	device  *cpu.Device
	stream  device.Stream
	account *device.Account
	shards  map[plan.ActorID]*optim.Executor
}

func newBench(t *testing.T, p *plan.Plan) *bench {
	t.Helper()
	d := cpu.New(cpu.Options{Poison: true})
	s, err := d.OpenStream("test", 1)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, p, d, s, device.NewAccount("test", 0), map[plan.ActorID]*optim.Executor{}}
	for _, a := range p.Actors {
		if a.ID.Role() == "shard" || a.ID.Role() == "mirror" {
			if b.shards[a.ID], err = optim.NewExecutor(p, a.ID, d, b.account); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() {
		for _, x := range b.shards {
			x.Close()
		}
		if n := b.account.Held(); n != 0 {
			t.Errorf("%d bytes are held after the end", n)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// run finds the operation of a shard and runs it.
func (b *bench) run(id plan.ActorID, ph plan.Phase, step int64, kind plan.OpKind, bucket int, in ...machine.Payload) ([]machine.Payload, error) {
	b.t.Helper()
	ops := b.plan.Program(id, ph).Ops
	for i := range ops {
		if op := &ops[i]; op.Kind == kind && op.Bucket == bucket {
			var out []machine.Payload
			done := make(chan error, 1)
			b.stream.Do(func(k device.Kernels) (err error) {
				out, err = b.shards[id].Run(k, plan.Round{Step: step, Phase: ph}, op, in)
				return err
			}, func(err error) { done <- err })
			return out, <-done
		}
	}
	return nil, fmt.Errorf("%s has no %s of bucket %d", id, kind, bucket)
}

// must is run without an error.
func (b *bench) must(id plan.ActorID, ph plan.Phase, step int64, kind plan.OpKind, bucket int, in ...machine.Payload) []machine.Payload {
	b.t.Helper()
	out, err := b.run(id, ph, step, kind, bucket, in...)
	if err != nil {
		b.t.Fatalf("%s: %s: %v", id, kind, err)
	}
	return out
}

// owners are the shards that own something.
func (b *bench) owners() []plan.ActorID {
	var ids []plan.ActorID
	for _, a := range b.plan.Actors {
		if rank, d, _ := a.ID.Rank(); a.ID.Role() == "shard" && len(b.plan.Parts(rank, d)) > 0 {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// mirror is that of a shard.
func mirror(id plan.ActorID) plan.ActorID {
	rank, d, _ := id.Rank()
	return plan.MirrorID(rank, d)
}

func (b *bench) tensor(values []float32) machine.Tensor {
	s, err := b.device.Alloc(b.account, device.Messages, device.F32, len(values))
	if err != nil {
		b.t.Fatal(err)
	}
	copy(cpu.Float32s(s), values)
	return machine.Tensor{Slice: s}
}

func (b *bench) scalar(v float64) machine.Tensor {
	s, err := b.device.Alloc(b.account, device.Messages, device.F64, 1)
	if err != nil {
		b.t.Fatal(err)
	}
	cpu.Float64s(s)[0] = v
	return machine.Tensor{Slice: s}
}

func release(payloads ...machine.Payload) {
	for _, p := range payloads {
		p.Release()
	}
}
