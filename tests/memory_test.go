package tests

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/stage"
	"github.com/troupe-train/troupe/supervisor"
)

// meter is an executor that counts the micro-batches whose activations it holds.
type meter struct {
	machine.Executor
	live, most int
}

func (m *meter) Run(k device.Kernels, r plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	out, err := m.Executor.Run(k, r, op, in)
	if slices.ContainsFunc(op.Writes, func(v plan.Value) bool { return v.Kind == plan.Saved }) {
		m.live++
		m.most = max(m.most, m.live)
	}
	return out, err
}

func (m *meter) Free(r plan.Round, v plan.Value) {
	if v.Kind == plan.Saved {
		m.live--
	}
	m.Executor.Free(r, v)
}

// TestLiveActivations: rank r of p stages holds the activations of p-r micro-batches under 1F1B (Narayanan et al. 2019,
// section 3.2), and of all under GPipe (Huang et al. 2019, section 2.3), counted at the executors of a run.
func TestLiveActivations(t *testing.T) {
	const pipeline = 4
	for _, schedule := range []string{"1f1b", "gpipe"} {
		j := job(t, "train.batch=12", "train.steps=3", "layout.pipeline=4", "layout.schedule="+schedule)
		m, err := supervisor.BuildModel(j, 256)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.New(j, m, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		meters := compose(t, p)
		for r := range pipeline {
			want := pipeline - r
			if schedule == "gpipe" {
				want = len(p.Train)
			}
			id := plan.StageID(r, 0)
			if got := meters[id]; got.most != want || got.live != 0 {
				t.Errorf("%s, %s: %d micro-batches at most and %d at the end, want %d and 0", schedule, id, got.most, got.live, want)
			}
			i := slices.IndexFunc(p.Predicted.Actors, func(a plan.ActorPrediction) bool { return a.ID == id })
			if got := p.Predicted.Actors[i].LiveMicroBatches; got != want {
				t.Errorf("%s, %s: predicted %d, want %d", schedule, id, got, want)
			}
		}
	}
}

// compose runs the actors of a plan, with a meter at every stage.
func compose(t *testing.T, p *plan.Plan) map[plan.ActorID]*meter {
	t.Helper()
	stopped := make(chan error, 1)
	var once sync.Once
	node, err := actors.NewNode(actors.Options{Job: p.Job.Name, Placement: p.Actors, Observer: actors.Observer{
		Stop: func(err error) { once.Do(func() { stopped <- err }) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	d := cpu.New(cpu.Options{Float: device.F32})
	meters := map[plan.ActorID]*meter{}
	for _, a := range p.Actors {
		x := actors.Actor{Device: d, Account: device.NewAccount(string(a.ID), 0)}
		switch a.ID.Role() {
		case "trainer":
			x.Machine = supervisor.NewTrainer(p, supervisor.Rounds{Until: p.Job.Train.Steps})
			x.Executor = &supervisor.Executor{
				Plan: p, Device: d, Account: x.Account, Source: stolen{math.MaxInt64},
				Finished: func(supervisor.Outcome) error { return nil },
			}
		case "stage":
			e, err := stage.NewExecutor(p, a.ID, d, x.Account)
			if err != nil {
				t.Fatal(err)
			}
			meters[a.ID] = &meter{Executor: e}
			x.Machine, x.Executor = stage.NewMachine(p, a.ID), meters[a.ID]
		default:
			x.Machine = optim.NewMachine(p, a.ID)
			if x.Executor, err = optim.NewExecutor(p, a.ID, d, x.Account); err != nil {
				t.Fatal(err)
			}
		}
		if x.Stream, err = d.OpenStream(string(a.ID), 1); err != nil {
			t.Fatal(err)
		}
		if err := node.Spawn(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := node.Send(plan.Trainer, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if err := node.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	return meters
}

// TestPeaksArePredicted compares the most memory that each actor held with what the plan says. What an actor got
// from another is charged to that one until it is given back; on a machine that is busy with other things that may be
// late, and comes on top. So of a few runs the one with the least counts.
func TestPeaksArePredicted(t *testing.T) {
	const runs, tolerance = 8, 0.05
	for _, set := range [][]string{
		{"layout.pipeline=1"},
		{"layout.pipeline=3"},
		{"layout.pipeline=3", "layout.schedule=gpipe", "train.batch=16"},
		{"layout.pipeline=2", "layout.data=2"},
		{"layout.data=3", "train.batch=14", "train.optimizer.kind=sgd"},
		{"layout.pipeline=1", "train.precision=bf16"},
		{"layout.pipeline=3", "layout.data=2", "train.precision=bf16"},
	} {
		set = with(set, "train.steps=3", "model.width=32", "model.context=16")
		j := job(t, set...)
		m, err := supervisor.BuildModel(j, 256)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.New(j, m, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		peaks := train(t, set).PeakBytes
		off := func(a plan.ActorPrediction) float64 { return float64(peaks[a.ID]-a.Peak()) / float64(a.Peak()) }
		tooMuch := func(a plan.ActorPrediction) bool { return off(a) > tolerance }
		for i := 1; i < runs && slices.ContainsFunc(p.Predicted.Actors, tooMuch); i++ {
			for id, bytes := range train(t, set).PeakBytes {
				peaks[id] = min(peaks[id], bytes)
			}
		}
		for _, a := range p.Predicted.Actors {
			if math.Abs(off(a)) > tolerance {
				t.Errorf("%v: %s held %d bytes at most, %+.1f %% off the predicted %d", set, a.ID, peaks[a.ID], 100*off(a), a.Peak())
			}
		}
	}
}
