package sim_test

import (
	"context"
	"flag"
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

// shelf keeps the last state of a run as whole vectors: of weights and of moments, by bucket.
type shelf struct {
	plan    *plan.Plan // of the run that uses the shelf now
	step    int64
	vectors [][][]float32
}

func (s *shelf) Restore(id plan.ActorID) ([]float32, error) {
	var state []float32
	for _, vectors := range s.vectors {
		for _, part := range parts(s.plan, id) {
			state = append(state, vectors[part.Bucket][part.Range.Lo:part.Range.Hi]...)
		}
	}
	return state, nil
}

func (s *shelf) Keep(_ context.Context, step int64, state map[plan.ActorID][]float32) error {
	s.step, s.vectors = step, nil
	for len(state) > 0 {
		vectors := make([][]float32, len(s.plan.Buckets))
		for i := range vectors {
			vectors[i] = make([]float32, s.plan.Model.Buckets()[i].Len)
		}
		for id := range state {
			for _, part := range parts(s.plan, id) {
				n := copy(vectors[part.Bucket][part.Range.Lo:part.Range.Hi], state[id])
				state[id] = state[id][n:]
			}
			if len(state[id]) == 0 {
				delete(state, id)
			}
		}
		s.vectors = append(s.vectors, vectors)
	}
	return nil
}

func parts(p *plan.Plan, id plan.ActorID) []plan.Part {
	rank, d, _ := id.Rank()
	return p.Parts(rank, d)
}

const tinyVocab = 11

// tiny is a GPT of some thousand parameters in some layout.
func tiny(t testing.TB, set ...string) *plan.Plan {
	t.Helper()
	p, err := plan.New(tinyJob(t, set...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func tinyJob(t testing.TB, set ...string) (*plan.Job, *model.Model, plan.Options) {
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
	c := job.Model
	m, err := model.Build(c.Kind, model.Config{Layers: c.Layers, Width: c.Width, Heads: c.Heads, Context: c.Context, Vocab: tinyVocab, Dropout: c.Dropout})
	if err != nil {
		t.Fatal(err)
	}
	return job, m, plan.Options{}
}

// lab is a run of a plan that can be changed before it starts.
type lab struct {
	plan     *plan.Plan
	shelf    *shelf
	first    int64 // the step of the weights at the start
	until    int64
	change   func([]sim.Actor) // nil: nothing is changed
	outcomes []supervisor.Outcome
}

// outcome is what a run must give whatever the network does and however the model is laid out.
type outcome struct{ weights, rounds string }

// run simulates.
func (l *lab) run(t testing.TB, d device.Device, c sim.Config) (*sim.Result, error) {
	t.Helper()
	l.shelf.plan = l.plan
	account := device.NewAccount(string(plan.Trainer), 0)
	actors, err := sim.Actors(l.plan, d, sim.Actor{
		Machine: supervisor.NewTrainer(l.plan, supervisor.Rounds{First: l.first, Until: l.until, Evaluates: true}),
		Account: account,
		Executor: &supervisor.Executor{
			Plan: l.plan, Device: d, Account: account, Source: text{tinyVocab}, State: l.shelf,
			Finished: func(o supervisor.Outcome) error {
				l.outcomes = append(l.outcomes, o)
				return nil
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close(actors)
	if l.change != nil {
		l.change(actors)
	}
	c.Actors, c.Device = actors, d
	return sim.Run(c)
}

// simulate runs all steps of a plan.
func simulate(t testing.TB, d device.Device, p *plan.Plan, c sim.Config) (outcome, *sim.Result) {
	t.Helper()
	l := &lab{plan: p, shelf: &shelf{}, until: p.Job.Train.Steps}
	r, err := l.run(t, d, c)
	if err != nil {
		t.Fatalf("seed %d: %v", c.Seed, err)
	}
	if len(r.Refused) > 0 {
		t.Fatalf("seed %d: refused %s: %s", c.Seed, r.Refused[0].Name, r.Refused[0].Reason)
	}
	return l.outcome(), r
}

func (l *lab) outcome() outcome {
	var rounds strings.Builder
	for _, o := range l.outcomes {
		fmt.Fprintf(&rounds, "%s %x %x\n", o.Round, o.Losses, o.Norm)
	}
	return outcome{model.Hash(l.plan.Model, func(i int) []float32 { return l.shelf.vectors[0][i] }), rounds.String()}
}

var seeds = flag.Uint64("seeds", 20, "how many seeds TestLuck tries")

// TestLuck: whatever the network does, the weights are the same, the same seed gives the same trace,
// and in the end no memory is held.
func TestLuck(t *testing.T) {
	d := cpu.New(cpu.Options{Poison: true})
	defer d.Close()
	p := tiny(t, "layout.pipeline=3", "layout.data=2")
	want, _ := simulate(t, d, p, sim.Config{Network: sim.Prompt})
	traces := map[string]bool{}
	for seed := range *seeds {
		got, r := simulate(t, d, p, sim.Config{Seed: seed, Network: sim.Unkind})
		if got != want {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
		if seed < 10 {
			if _, again := simulate(t, d, p, sim.Config{Seed: seed, Network: sim.Unkind}); again.Trace != r.Trace {
				t.Fatalf("seed %d has two traces", seed)
			}
		}
		if r.Duplicates == 0 {
			t.Errorf("seed %d: no message came twice", seed)
		}
		traces[r.Trace] = true
	}
	if len(traces) != int(*seeds) {
		t.Errorf("%d seeds have %d traces", *seeds, len(traces))
	}
	if n, bytes := d.InUse(); n != 0 {
		t.Errorf("%d buffers of %d bytes are still held", n, bytes)
	}
}
