package sim_test

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/sim"
	"github.com/troupe-train/troupe/supervisor"
)

var (
	schedules = flag.Uint64("schedules", 60, "how many random schedules TestChaos runs, with kernels and with stubs each")
	first     = flag.Uint64("first", 0, "the first of the schedules of TestChaos")
)

// newBench is a bench of pipeline 3 and data 2 on some nodes.
func newBench(t testing.TB, c sim.BenchConfig, workers int, set ...string) *sim.Bench {
	t.Helper()
	job, m, o := tinyJob(t, append([]string{"layout.pipeline=3", "layout.data=2"}, set...)...)
	o.Nodes = workers
	p, err := plan.New(job, m, o)
	if err != nil {
		t.Fatal(err)
	}
	c.Plan = p
	if c.Device == nil {
		d := cpu.New(cpu.Options{Poison: true})
		t.Cleanup(func() {
			if n, bytes := d.InUse(); n != 0 && !t.Failed() {
				t.Errorf("%d buffers of %d bytes are still held", n, bytes)
			}
			d.Close()
		})
		c.Device = d
	}
	if c.Rounds.Until == 0 {
		c.Rounds = supervisor.Rounds{Until: 3, EvaluateEvery: 2, SnapshotEvery: 2, Evaluates: true}
	}
	b, err := sim.NewBench(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestChaos: whatever fails, the weights are those of the run in which nothing did.
func TestChaos(t *testing.T) {
	for name, stubs := range map[string]bool{"kernels": false, "stubs": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, sim.BenchConfig{Network: sim.Unkind, Nodes: 5, Stubs: stubs}, 3)
			struck, restarts, resumes, shifted := 0, 0, 0, 0
			for seed := *first; seed < *first+*schedules; seed++ {
				o := b.Chaos(seed)
				if o.Violation != nil {
					t.Fatalf("%v\nshrunk:\n%s", o.Violation, b.Shrink(o))
				}
				struck, restarts, resumes, shifted = struck+o.Struck, restarts+o.Restarts, resumes+o.Resumes, shifted+o.Shifted
			}
			t.Logf("%d schedules: %d faults struck, %d restarts, %d resumes, %d steps by other shares", *schedules, struck, restarts, resumes, shifted)
			if shifted == 0 {
				t.Error("no step was run by other shares than the plan's")
			}
		})
	}
}

// TestOneKill: an actor that dies once begins one new life, and nobody else does.
func TestOneKill(t *testing.T) {
	b := newBench(t, sim.BenchConfig{Network: sim.Unkind, Nodes: 4}, 3)
	for _, id := range []plan.ActorID{"stage.p0.d0", "stage.p1.d1", "shard.p0.d0", "mirror.p2.d0", "trainer"} {
		f, err := fault.ParseLine("kill " + string(id) + " at number 3 of train step 1")
		if err != nil {
			t.Fatal(err)
		}
		o := b.Run(1, []fault.Fault{f}, nil)
		if o.Violation != nil || o.Struck != 1 || o.Restarts != 1 || o.Lives[id] != 1 || o.Resumes != 0 {
			t.Errorf("%s: %s", id, o)
		}
	}
}

// TestSilentCorruption: a life that computes other bits than the one before is found out by the first message that it
// sends again, and is named.
func TestSilentCorruption(t *testing.T) {
	b := newBench(t, sim.BenchConfig{Network: sim.Unkind, Nodes: 4, Plant: sim.ForgottenKey}, 3)
	f, err := fault.ParseLine("kill stage.p1.d0 at backward-weight micro-batch 1 of train step 1")
	if err != nil {
		t.Fatal(err)
	}
	o := b.Run(1, []fault.Fault{f}, nil)
	var corruption *machine.Corruption
	if !errors.As(o.Violation, &corruption) || corruption.Name.From != plan.StageID(1, 0) || corruption.Name.Incarnation != 1 || corruption.Before != 0 {
		t.Errorf("%s", o)
	}
}

// TestLostForGood: when a shard and its mirror die at once, the job goes back to a checkpoint, and the weights are
// still the same.
func TestLostForGood(t *testing.T) {
	b := newBench(t, sim.BenchConfig{Network: sim.Unkind, Nodes: 4}, 3)
	faults, err := fault.Parse("kill shard.p1.d0 at update of train step 2\nkill mirror.p1.d0 at shard.p1.d0 update of train step 2")
	if err != nil {
		t.Fatal(err)
	}
	if o := b.Run(1, faults, nil); o.Violation != nil || o.Struck != 2 || o.Resumes != 1 {
		t.Errorf("%s: %q", o, o.Decisions)
	}
}

// TestCheck: what a simulation cannot do is refused, and what did not come to its point is told.
func TestCheck(t *testing.T) {
	b := newBench(t, sim.BenchConfig{Nodes: 4, Stubs: true}, 2)
	for line, want := range map[string]string{
		"kill stage.p1.d0 at forward of train step 1":           "",
		"kill-node 3 at stage.p0.d0 of train step 1":            "",
		"jump-clock 0 at trainer decide of train step 1 for 1h": "",
		"kill stage.p9.d0 at forward of train step 1":           "no actor stage.p9.d0",
		"kill stage.p1.d0 at decide of train step 1":            "no operation decide in train",
		"kill-node 4 at stage.p0.d0 of train step 1":            "no node 4; 0 to 3 are legal",
		"kill-node 0 at stage.p0.d0 of train step 1":            "ends with node 0",
		"pause-node 0 at stage.p0.d0 of train step 1 for 1s":    "ends with node 0",
		"jump-clock 1 at trainer decide of train step 1 for 1h": "node 0 alone",
		"fill-disk 2 at trainer decide of train step 1 for 1s":  "node 0 that writes",
		"partition 0,1,2,3,1 at trainer of train step 1 for 1s": "names all nodes",
		"shift 1,2 at stage.p0.d0 forward of train step 1":      "at the trainer is legal",
	} {
		faults, err := fault.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Check(faults); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	faults, err := fault.Parse("kill stage.p0.d0 at forward of train step 1\nkill stage.p0.d0 at forward of train step 99")
	if err != nil {
		t.Fatal(err)
	}
	if o := b.Run(1, faults, nil); o.Violation != nil || o.Struck != 1 || len(o.Missed) != 1 || o.Missed[0].At.Round.Step != 99 {
		t.Errorf("%s, missed %v", o, o.Missed)
	}
}

// TestPlants: three mistakes that the recovery could have, each found within 1,000 random schedules, and shrunk to
// one of a few faults.
func TestPlants(t *testing.T) {
	for name, plant := range map[string]sim.Plant{"no fencing": sim.NoFencing, "outbox dropped early": sim.EarlyTrim, "key forgotten": sim.ForgottenKey} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, sim.BenchConfig{Network: sim.Unkind, Nodes: 5, Stubs: true, Plant: plant}, 3)
			for seed := range uint64(1000) {
				o := b.Chaos(seed)
				if o.Violation == nil {
					continue
				}
				small := b.Shrink(o)
				if small.Violation == nil || len(small.Faults) > len(o.Faults) || len(small.Faults) > 2 {
					t.Errorf("%d faults are shrunk to %s", len(o.Faults), small)
				}
				t.Logf("found with seed %d: %d faults, shrunk to %d: %v\n%s", seed, len(o.Faults), len(small.Faults), small.Violation, fault.Format(small.Faults))
				return
			}
			t.Error("1000 schedules do not find it")
		})
	}
}
