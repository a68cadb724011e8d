package sim_test

import (
	"flag"
	"testing"

	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/sim"
	"github.com/troupe-train/troupe/supervisor"
)

var schedules = flag.Uint64("schedules", 60, "how many random schedules TestChaos runs, with kernels and with stubs each")

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
			struck, restarts, resumes := 0, 0, 0
			for seed := range *schedules {
				o := b.Chaos(seed)
				if o.Violation != nil {
					t.Fatalf("%v\nshrunk:\n%s", o.Violation, b.Shrink(o))
				}
				struck, restarts, resumes = struck+o.Struck, restarts+o.Restarts, resumes+o.Resumes
			}
			t.Logf("%d schedules: %d faults struck, %d restarts, %d resumes", *schedules, struck, restarts, resumes)
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
