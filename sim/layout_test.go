package sim_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/sim"
	"github.com/troupe-train/troupe/supervisor"
)

// TestLayouts: pipeline depth, schedule and data degree change no bit of weights, losses or norms, for even,
// odd and ragged batches.
func TestLayouts(t *testing.T) {
	d := cpu.New(cpu.Options{Poison: true})
	defer d.Close()
	for _, c := range []struct {
		set   []string
		micro int // micro-batches: the most data ranks that are legal
	}{
		{[]string{"train.batch=6", "train.micro_batch=1"}, 6},
		{[]string{"train.batch=10", "train.micro_batch=4"}, 3},
		{[]string{"train.batch=2", "train.micro_batch=2"}, 1},
		// Parameters of more than one block of the norm, so that shards cut through them.
		{[]string{"train.batch=5", "train.micro_batch=2", "model.width=24", "model.layers=1"}, 3},
		{[]string{"train.batch=7", "train.micro_batch=1", "train.optimizer.kind=sgd", "train.optimizer.momentum=0.9", "model.layers=5"}, 7},
		{[]string{"train.batch=3", "train.micro_batch=2", "model.kind=llama", "model.layers=1"}, 2},
		{[]string{"train.batch=5", "train.micro_batch=2", "train.precision=bf16", "model.layers=2"}, 3},
	} {
		want, _ := simulate(t, d, tiny(t, c.set...), sim.Config{})
		for _, pipeline := range []int{1, 2, 3, 4, 9} {
			for _, data := range []int{1, 2, 3, 4} {
				if data > c.micro {
					continue
				}
				for _, schedule := range []string{"gpipe", "1f1b"} {
					set := append(c.set[:len(c.set):len(c.set)],
						fmt.Sprintf("layout.pipeline=%d", pipeline), fmt.Sprintf("layout.data=%d", data), "layout.schedule="+schedule)
					got, r := simulate(t, d, tiny(t, set...), sim.Config{Seed: 1, Network: sim.Unkind})
					if got != want {
						t.Errorf("%v: %v, want %v", set, got, want)
					}
					if testing.Verbose() {
						t.Logf("%v: %s, %d events", set, got.weights[:8], r.Events)
					}
				}
			}
		}
	}
}

// TestResume: a step, a stop, and the next step from the snapshot in another layout are two steps.
func TestResume(t *testing.T) {
	d := cpu.New(cpu.Options{Poison: true})
	defer d.Close()
	whole, _ := simulate(t, d, tiny(t), sim.Config{})
	for _, layouts := range [][2][]string{
		{{"layout.pipeline=1"}, {"layout.pipeline=1"}},
		{{"layout.pipeline=2", "layout.data=3"}, {"layout.pipeline=4", "layout.schedule=gpipe"}},
		{{"layout.data=4"}, {"layout.pipeline=3", "layout.data=2"}},
	} {
		first := &lab{plan: tiny(t, layouts[0]...), shelf: &shelf{}, until: 1}
		if _, err := first.run(t, d, sim.Config{}); err != nil {
			t.Fatal(err)
		}
		job, m, o := tinyJob(t, layouts[1]...)
		o.Resume = true
		p, err := plan.New(job, m, o)
		if err != nil {
			t.Fatal(err)
		}
		second := &lab{plan: p, shelf: first.shelf, first: first.shelf.step, until: 2}
		if _, err := second.run(t, d, sim.Config{Network: sim.Unkind}); err != nil {
			t.Fatal(err)
		}
		if got := second.outcome(); got.weights != whole.weights {
			t.Errorf("%v and then %v: %s, want %s", layouts[0], layouts[1], got.weights, whole.weights)
		}
	}
}

// counting counts the micro-batches whose activations a stage holds.
type counting struct {
	machine.Executor
	live, most int
}

func (c *counting) Run(k device.Kernels, r plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	out, err := c.Executor.Run(k, r, op, in)
	if slices.ContainsFunc(op.Writes, func(v plan.Value) bool { return v.Kind == plan.Saved }) {
		c.live++
		c.most = max(c.most, c.live)
	}
	return out, err
}

func (c *counting) Free(r plan.Round, v plan.Value) {
	if v.Kind == plan.Saved {
		c.live--
	}
	c.Executor.Free(r, v)
}

func (c *counting) Close() { c.Executor.(interface{ Close() }).Close() }

// TestLiveActivations: rank r of p holds the activations of at most p-r micro-batches under 1F1B
// (Narayanan et al. 2019, section 3.2), and of all under GPipe (Huang et al. 2019, section 2.3).
func TestLiveActivations(t *testing.T) {
	d := cpu.New(cpu.Options{})
	defer d.Close()
	for _, schedule := range []string{"1f1b", "gpipe"} {
		p := tiny(t, "layout.pipeline=4", "layout.schedule="+schedule)
		for seed := range uint64(5) {
			counts := map[plan.ActorID]*counting{}
			l := &lab{plan: p, shelf: &shelf{}, until: 1, change: func(actors []sim.Actor) {
				for i := range actors {
					if id := actors[i].Machine.ID(); id.Role() == "stage" {
						counts[id] = &counting{Executor: actors[i].Executor}
						actors[i].Executor = counts[id]
					}
				}
			}}
			if _, err := l.run(t, d, sim.Config{Seed: seed, Network: sim.Unkind}); err != nil {
				t.Fatal(err)
			}
			for id, c := range counts {
				rank, _, _ := id.Rank()
				want := 4 - rank
				if schedule == "gpipe" {
					want = len(p.Train)
				}
				if c.most != want {
					t.Errorf("%s, %s, seed %d: %d micro-batches, want %d", schedule, id, seed, c.most, want)
				}
			}
		}
	}
}

// TestRagged: how a batch is cut into micro-batches, short ones included, changes losses and the norm of
// the gradient by no more than rounding: every token weighs the same.
func TestRagged(t *testing.T) {
	d := cpu.New(cpu.Options{})
	defer d.Close()
	var loss, norm float64
	for _, micro := range []int{10, 1, 3, 4, 7} {
		l := &lab{plan: tiny(t, "train.batch=10", fmt.Sprintf("train.micro_batch=%d", micro)), shelf: &shelf{}, until: 1}
		if _, err := l.run(t, d, sim.Config{}); err != nil {
			t.Fatal(err)
		}
		o := l.outcomes[slices.IndexFunc(l.outcomes, func(o supervisor.Outcome) bool { return o.Round.Phase == plan.TrainPhase })]
		if len(o.Losses) != (10+micro-1)/micro {
			t.Fatalf("micro-batches of %d rows: %d losses", micro, len(o.Losses))
		}
		got := o.Loss(10 * l.plan.Model.Context)
		if micro == 10 {
			loss, norm = got, o.Norm
			continue
		}
		if math.Abs(got-loss) > 1e-6*loss || math.Abs(o.Norm-norm) > 1e-5*norm {
			t.Errorf("micro-batches of %d rows: loss %v, norm %v; whole: %v, %v", micro, got, o.Norm, loss, norm)
		}
	}
}
