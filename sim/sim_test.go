package sim_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/sim"
	"github.com/troupe-train/troupe/supervisor"
)

// text is made up: its windows are a pure function of their numbers.
type text struct{ vocab int }

func (s text) Window(i int64, dst []int32) { s.write(1, uint64(i), dst) }
func (s text) Held(j int, dst []int32)     { s.write(2, uint64(j), dst) }
func (s text) write(key, i uint64, dst []int32) {
	for t := range dst {
		dst[t] = int32(random.Block(key, i, uint64(t))[0] % uint32(s.vocab))
	}
}

// shelf keeps the last state of a run, by shard.
type shelf struct {
	step  int64
	state map[plan.ActorID][]float32
}

func (s *shelf) Restore(id plan.ActorID) ([]float32, error) { return s.state[id], nil }
func (s *shelf) Keep(_ context.Context, step int64, state map[plan.ActorID][]float32) error {
	s.step, s.state = step, state
	return nil
}

// whole puts the weights of a state together, bucket by bucket.
func (s *shelf) whole(p *plan.Plan) string {
	buckets := make([][]float32, len(p.Buckets))
	for i := range buckets {
		buckets[i] = make([]float32, p.Model.Buckets()[i].Len)
	}
	for rank := range p.Stages {
		for d := range p.Job.Layout.Data {
			off := 0
			for _, part := range p.Parts(rank, d) {
				copy(buckets[part.Bucket][part.Range.Lo:part.Range.Hi], s.state[plan.ShardID(rank, d)][off:])
				off += part.Range.Len()
			}
		}
	}
	return model.Hash(p.Model, func(i int) []float32 { return buckets[i] })
}

const tinyVocab = 11

// tiny is a GPT of a few thousand parameters in some layout.
func tiny(t testing.TB, set ...string) *plan.Plan {
	t.Helper()
	job, err := plan.Parse("tiny.yaml", []byte(`
name: tiny
model: {kind: gpt, layers: 2, width: 8, heads: 2, context: 8, vocab: bytes, dropout: 0.1}
data: {text: none}
train: {steps: 2, batch: 6, micro_batch: 1, optimizer: {kind: adamw, lr: 0.01, warmup: 1, clip: 1.0, weight_decay: 0.1}, seed: 7, evaluate: {batch: 3}}
layout: {pipeline: 1}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range set {
		if err := job.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	m, err := model.Build("gpt", model.Config{Layers: job.Model.Layers, Width: 8, Heads: 2, Context: 8, Vocab: tinyVocab, Dropout: job.Model.Dropout})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(job, m, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// outcome is what a run must give whatever the seed of the network.
type outcome struct {
	weights string
	losses  string
}

// simulate runs the steps of a plan.
func simulate(t testing.TB, d device.Device, p *plan.Plan, c sim.Config) (outcome, *sim.Result) {
	t.Helper()
	kept := &shelf{}
	var losses []string
	account := device.NewAccount(string(plan.Trainer), 0)
	trainer := sim.Actor{
		Machine: supervisor.NewTrainer(p, supervisor.Rounds{Until: p.Job.Train.Steps, Evaluates: true}),
		Account: account,
		Executor: &supervisor.Executor{
			Plan: p, Device: d, Account: account, Source: text{tinyVocab}, State: kept,
			Finished: func(o supervisor.Outcome) error {
				losses = append(losses, fmt.Sprintf("%s %x %x", o.Round, o.Losses, o.Norm))
				return nil
			},
		},
	}
	actors, err := sim.Actors(p, d, trainer)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close(actors)
	c.Actors, c.Device = actors, d
	r, err := sim.Run(c)
	if err != nil {
		t.Fatalf("seed %d: %v", c.Seed, err)
	}
	if len(r.Refused) > 0 {
		t.Fatalf("seed %d: refused %s: %s", c.Seed, r.Refused[0].Name, r.Refused[0].Reason)
	}
	for _, a := range actors {
		if a.Machine.ID().Role() == "stage" {
			if n := a.Account.HeldFor(device.Optimizer); n != 0 {
				t.Errorf("%s holds %d bytes of optimizer state", a.Machine.ID(), n)
			}
		}
	}
	return outcome{kept.whole(p), strings.Join(losses, "\n")}, r
}

// TestLuck: whatever the network does, the weights are the same.
func TestLuck(t *testing.T) {
	d := cpu.New(cpu.Options{Poison: true})
	defer d.Close()
	p := tiny(t, "layout.pipeline=3", "layout.data=2")
	want, _ := simulate(t, d, p, sim.Config{Network: sim.Prompt})
	for seed := range uint64(20) {
		got, r := simulate(t, d, p, sim.Config{Seed: seed, Network: sim.Unkind})
		if got != want {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
		if seed == 0 {
			t.Logf("%d events, %d messages, %d twice, %s", r.Events, r.Messages, r.Duplicates, r.Time)
		}
		if _, again := simulate(t, d, p, sim.Config{Seed: seed, Network: sim.Unkind}); again.Trace != r.Trace {
			t.Fatalf("seed %d has two traces", seed)
		}
	}
	if n, bytes := d.InUse(); n != 0 {
		t.Errorf("%d buffers of %d bytes are still held", n, bytes)
	}
}
