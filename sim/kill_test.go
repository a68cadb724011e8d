package sim_test

import (
	"flag"
	"fmt"
	"maps"
	"testing"

	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/sim"
	"github.com/troupe-train/troupe/supervisor"
)

var full = flag.Bool("full", false, "TestKillEverywhere kills at every place of every round, and not at every third of some")

// everywhere kills an actor at every stride-th receive, operation and send of a round, one run each, and returns
// how many of them there are. The faults besides strike in every run, and restart nobody.
func everywhere(t *testing.T, b *sim.Bench, round plan.Round, id plan.ActorID, stride int, besides ...fault.Fault) int {
	t.Helper()
	for number := 0; ; number += stride {
		f := fault.Fault{Kind: fault.Kill, Actor: id, At: fault.Point{Round: round, Micro: fault.Any, Bucket: fault.Any, Number: number}}
		o := b.Run(uint64(number), append(besides[:len(besides):len(besides)], f), nil)
		if o.Violation != nil {
			t.Fatal(o)
		}
		if len(besides) > 0 && o.Shifted == 0 {
			t.Fatalf("%s: no step was run by other shares", o)
		}
		if o.Struck == len(besides) {
			return number
		}
		if want := map[plan.ActorID]int{id: 1}; o.Resumes != 0 || !maps.Equal(o.Lives, want) {
			t.Fatalf("%s: lives %v, want %v", o, o.Lives, want)
		}
	}
}

// TestKillEverywhere kills each stage, shard, mirror and the trainer at every receive, operation and send of
// its program, so also between the pieces of a reduction: equal weights, and nobody else restarts.
func TestKillEverywhere(t *testing.T) {
	for _, c := range []struct {
		name  string
		stubs bool
		set   []string
		round []plan.Round
		// shift are changes of shares, and shares those of the step in which is killed.
		shift  string
		shares plan.Shares
	}{
		{"a step", false, nil, []plan.Round{{Step: 1, Phase: plan.TrainPhase}}, "", ""},
		{"other rounds", true, nil, []plan.Round{{Phase: plan.InitPhase}, {Phase: plan.TrainPhase}, {Step: 2, Phase: plan.EvaluatePhase}, {Step: 2, Phase: plan.SnapshotPhase}, {Step: 3, Phase: plan.SnapshotPhase}}, "", ""},
		{"gpipe", true, []string{"layout.schedule=gpipe", "layout.pipeline=2", "layout.data=3"}, []plan.Round{{Step: 1, Phase: plan.TrainPhase}}, "", ""},
		{"without mirrors", true, []string{"supervisor.mirror=false"}, []plan.Round{{Step: 1, Phase: plan.TrainPhase}}, "", ""},
		{"uneven shares", true, []string{"train.batch=7"}, []plan.Round{{Step: 1, Phase: plan.TrainPhase}}, "shift 2,5 at trainer of init step 0", "2,5"},
		{"the step at which shares change", true, nil, []plan.Round{{Step: 1, Phase: plan.TrainPhase}}, "shift 5,1 at trainer of train step 0", "5,1"},
		{"the step before shares change", true, []string{"layout.schedule=gpipe"}, []plan.Round{{Step: 1, Phase: plan.TrainPhase}}, "shift 5,1 at trainer of init step 0\nshift 1,5 at trainer of train step 1", "5,1"},
		{"the step at which they change back", true, nil, []plan.Round{{Step: 1, Phase: plan.TrainPhase}}, "shift 1,5 at trainer of init step 0\nshift 3,3 at trainer of train step 0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, sim.BenchConfig{Network: sim.Unkind, Stubs: c.stubs, Nodes: 4,
				Rounds: supervisor.Rounds{Until: 3, EvaluateEvery: 2, SnapshotEvery: 2, Evaluates: true}}, 3, c.set...)
			p := b.Plan()
			besides, err := fault.Parse(c.shift)
			if err != nil {
				t.Fatal(err)
			}
			runs, stride := 0, 1
			if c.stubs && !*full {
				stride = 3
			}
			for _, round := range c.round {
				for _, a := range p.Actors {
					if a.ID.Role() == "shard" && !p.Job.Supervisor.Mirror {
						continue // nobody has its state
					}
					n := everywhere(t, b, round, a.ID, stride, besides...)
					places := 0 // what is offered is not sent while nobody needs it
					at := round
					at.Shares = c.shares
					program, err := p.ProgramIn(a.ID, at)
					if err != nil {
						t.Fatal(err)
					}
					for _, op := range program.Ops {
						if op.Kind != plan.Offer {
							places++
						}
					}
					if n < places {
						t.Errorf("%s is killed at %d places of %s, which has %d operations", a.ID, n, round, places)
					}
					runs += (n + stride - 1) / stride
				}
			}
			t.Logf("%d runs", runs)
		})
	}
}

// TestKillInRecovery kills an actor a second time while it recovers, and those whom it recovers from.
func TestKillInRecovery(t *testing.T) {
	b := newBench(t, sim.BenchConfig{Network: sim.Unkind, Stubs: true, Nodes: 4}, 3)
	runs := 0
	for _, pair := range [][2]plan.ActorID{
		{"stage.p1.d0", "stage.p1.d0"}, {"stage.p1.d0", "mirror.p1.d0"}, {"stage.p1.d0", "mirror.p1.d1"}, {"stage.p1.d0", "stage.p0.d0"},
		{"stage.p1.d0", "stage.p2.d0"}, {"stage.p1.d0", "shard.p1.d0"}, {"stage.p1.d0", "trainer"}, {"shard.p1.d0", "shard.p1.d0"},
		{"shard.p1.d0", "stage.p1.d1"}, {"shard.p1.d0", "trainer"}, {"mirror.p1.d0", "mirror.p1.d0"}, {"mirror.p1.d0", "stage.p1.d0"},
		{"mirror.p1.d0", "trainer"}, {"trainer", "trainer"}, {"trainer", "stage.p2.d1"},
	} {
		for number := 0; number < 40; number += 5 {
			for _, second := range []plan.Phase{plan.TrainPhase, plan.RecoverPhase} {
				text := fmt.Sprintf("kill %s at number %d of train step 1\nkill %s at number %d of %s step 1\n", pair[0], number, pair[1], number/5, second)
				if second == plan.RecoverPhase && pair[1] != pair[0] {
					// While the first one recovers.
					text = fmt.Sprintf("kill %s at number %d of train step 1\nkill %s at %s of recover step 1\n", pair[0], number, pair[1], pair[0])
				}
				faults, err := fault.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				o := b.Run(uint64(number), faults, nil)
				if o.Violation != nil {
					t.Fatal(o)
				}
				if o.Resumes != 0 {
					t.Errorf("%s goes back to a checkpoint: %q", o, o.Decisions)
				}
				runs++
			}
		}
	}
	t.Logf("%d runs", runs)
}

// TestSevenHundredActors: recovery does not depend on the number of actors. A stage and a shard fail, each in the middle of a
// step of more than 700; nobody else restarts.
func TestSevenHundredActors(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	const workers = 24
	b := newBench(t, sim.BenchConfig{Stubs: true, Nodes: workers + 1, Rounds: supervisor.Rounds{Until: 2}}, workers,
		"layout.pipeline=24", "layout.data=15", "train.batch=15", "train.micro_batch=1")
	p := b.Plan()
	if len(p.Actors) < 700 {
		t.Fatalf("%d actors", len(p.Actors))
	}
	rank := 0 // one that has layers of its own
	for len(p.Parts(rank, 0)) == 0 {
		rank++
	}
	step := plan.Round{Step: 1, Phase: plan.TrainPhase}
	for i, id := range []plan.ActorID{plan.StageID(rank, 7), plan.ShardID(rank, 0)} {
		r := b.Run(uint64(i), []fault.Fault{{Kind: fault.Kill, Actor: id, At: fault.Point{Round: step, Micro: fault.Any, Bucket: fault.Any, Number: 5}}}, nil)
		if want := map[plan.ActorID]int{id: 1}; r.Violation != nil || r.Struck != 1 || r.Resumes != 0 || !maps.Equal(r.Lives, want) {
			t.Errorf("%s: %v", id, r)
		}
	}
}
