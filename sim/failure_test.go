package sim_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/sim"
	"github.com/troupe-train/troupe/supervisor"
)

// deaf is a machine that never hears of some messages.
type deaf struct {
	machine.Closer
	to func(machine.Name) bool
}

func (m deaf) Handle(e machine.Event) []machine.Effect {
	if a, ok := e.(machine.Arrived); ok && m.to(a.Message.Name) {
		return machine.Discard(e)
	}
	return m.Closer.Handle(e)
}

// TestDeadlock: when a message is lost, the run ends with the chain of those who wait, which
// leads to the name of the message.
func TestDeadlock(t *testing.T) {
	d := cpu.New(cpu.Options{})
	defer d.Close()
	lost := plan.Value{Kind: plan.Activation, Index: 2, Lo: 4, Piece: -1}
	l := &lab{plan: tiny(t, "layout.pipeline=3", "layout.data=2"), shelf: &shelf{}, until: 2}
	l.change = func(actors []sim.Actor) {
		for i := range actors {
			actors[i].Machine = deaf{actors[i].Machine.(machine.Closer), func(n machine.Name) bool {
				return n.Value == lost && n.Round == plan.Round{Step: 1, Phase: plan.TrainPhase}
			}}
		}
	}
	_, err := l.run(t, d, sim.Config{Network: sim.Unkind})
	var deadlock *sim.Deadlock
	if !errors.As(err, &deadlock) {
		t.Fatalf("error %v", err)
	}
	if deadlock.Chain[0].Actor != plan.Trainer {
		t.Errorf("the chain begins at %s", deadlock.Chain[0].Actor)
	}
	found := false
	for _, link := range deadlock.Chain {
		found = found || link.Wait.Value == lost && link.Wait.From == plan.StageID(0, 1)
	}
	if !found || !strings.Contains(err.Error(), "waiting for activation into layer 2 micro-batch 4 from stage.p0.d1") {
		t.Errorf("the lost message is not named: %v", err)
	}
}

// breaking fails at an operation, by an error or by a panic, and counts what is run after that.
type breaking struct {
	machine.Executor
	at     plan.OpKind
	panic  bool
	broken bool
	after  int
}

func (x *breaking) Run(k device.Kernels, r plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	if x.broken {
		x.after++
	}
	if op.Kind == x.at && r.Step == 1 {
		x.broken = true
		if x.panic {
			panic("broken invariant")
		}
		return nil, errors.New("broken device")
	}
	return x.Executor.Run(k, r, op, in)
}

func (x *breaking) Close() { x.Executor.(interface{ Close() }).Close() }

// TestFailure: an operation that fails ends the run with its actor, step and cause, and closing the
// executors gives everything back.
func TestFailure(t *testing.T) {
	d := cpu.New(cpu.Options{})
	defer d.Close()
	for _, c := range []struct {
		actor plan.ActorID
		at    plan.OpKind
		panic bool
		want  string
	}{
		{plan.StageID(1, 0), plan.BackwardInput, false, "broken device"},
		{plan.StageID(2, 1), plan.Forward, true, "panic: broken invariant"},
		{plan.ShardID(0, 1), plan.Update, false, "broken device"},
	} {
		t.Run(fmt.Sprintf("%s %s", c.actor, c.at), func(t *testing.T) {
			l := &lab{plan: tiny(t, "layout.pipeline=3", "layout.data=2"), shelf: &shelf{}, until: 2}
			x := &breaking{at: c.at, panic: c.panic}
			l.change = func(actors []sim.Actor) {
				for i := range actors {
					if actors[i].Machine.ID() == c.actor {
						x.Executor = actors[i].Executor
						actors[i].Executor = x
					}
				}
			}
			_, err := l.run(t, d, sim.Config{Seed: 3, Network: sim.Unkind})
			for _, want := range []string{string(c.actor), "step 1", c.at.String(), c.want} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want one with %q", err, want)
				}
			}
			if x.after != 0 {
				t.Errorf("%d operations ran after the one that failed", x.after)
			}
			if n, size := d.InUse(); n != 0 {
				t.Errorf("%d buffers of %d bytes are still held", n, size)
			}
		})
	}
}

// TestEventsMax: a run that does not end is ended.
func TestEventsMax(t *testing.T) {
	d := cpu.New(cpu.Options{})
	defer d.Close()
	l := &lab{plan: tiny(t, "layout.pipeline=2"), shelf: &shelf{}, until: 2}
	r, err := l.run(t, d, sim.Config{EventsMax: 50})
	if err == nil || !strings.Contains(err.Error(), "50 events and no end") || r.Events != 50 {
		t.Errorf("after %d events: %v", r.Events, err)
	}
	if n, _ := d.InUse(); n != 0 {
		t.Errorf("%d buffers are still held", n)
	}
}

// TestTrace: the text of a trace has a line for each event, and names what happened.
func TestTrace(t *testing.T) {
	d := cpu.New(cpu.Options{})
	defer d.Close()
	var text bytes.Buffer
	_, r := simulate(t, d, tiny(t, "layout.pipeline=2"), sim.Config{Seed: 1, Network: sim.Unkind, Trace: &text})
	if n := strings.Count(text.String(), "\n"); n != r.Events {
		t.Errorf("%d lines for %d events", n, r.Events)
	}
	for _, want := range []string{
		"trainer is told machine.Begin",
		"stage.p1.d0 gets activation into layer 2 micro-batch 3 (train step 1) from stage.p0.d0",
		"shard.p0.d0 gets gradient bucket 0 use 0 micro-batches 0..5 piece 0 (train step 0) from stage.p0.d0",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the trace lacks %q", want)
		}
	}
}

// TestNoTrainer: somebody must start.
func TestNoTrainer(t *testing.T) {
	d := cpu.New(cpu.Options{})
	defer d.Close()
	if _, err := sim.Run(sim.Config{Device: d}); err == nil {
		t.Error("a simulation without a trainer runs")
	}
}

// TestKnownLifeAcrossACut: who has been told of a later life sends to that one, and not to the one before it, which
// is alive on the same side of a cut. A mirror's state went to a life that was fenced, and was never sent again.
func TestKnownLifeAcrossACut(t *testing.T) {
	b := newBench(t, sim.BenchConfig{Network: sim.Unkind, Nodes: 6, Stubs: true, Rounds: supervisor.Rounds{Until: 4, EvaluateEvery: 2, SnapshotEvery: 2}}, 4,
		"model.layers=4", "layout.data=3", "train.batch=11", "train.micro_batch=2", "train.evaluate.batch=0")
	faults, err := fault.Parse("partition 2,5 at mirror.p0.d2 number 1 of train step 3 for 622ms\npartition 1,3,5 at stage.p1.d0 number 1 of train step 3 for 1.747s")
	if err != nil {
		t.Fatal(err)
	}
	if o := b.Run(1252, faults, nil); o.Violation != nil {
		t.Error(o)
	}
}
