package sim_test

import (
	"fmt"
	"testing"

	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/sim"
	"github.com/troupe-train/troupe/supervisor"
)

// randomShares are some of n micro-batches for data ranks, a function of key.
func randomShares(n, ranks int, key uint64) plan.Shares {
	counts := make([]int, ranks)
	for d := range counts {
		counts[d] = 1
	}
	for i := range n - ranks {
		counts[random.Key(key, uint64(i))%uint64(ranks)]++
	}
	return plan.SharesOf(counts)
}

// TestShares: by which shares a step is run changes no bit of weights, losses or norms, for even, odd and ragged
// batches, and when the shares change at every step. Those by which a job is told to run change none either.
func TestShares(t *testing.T) {
	d := cpu.New(cpu.Options{Poison: true})
	defer d.Close()
	runs := 0
	for _, set := range [][]string{
		{"train.batch=6", "train.micro_batch=1"},
		{"train.batch=14", "train.micro_batch=3"}, // 5, the last of 2 sequences
		{"train.batch=12", "train.micro_batch=1", "model.layers=1"},
		{"train.batch=11", "train.micro_batch=2", "model.layers=1", "train.optimizer.kind=sgd"}, // 6, the last of 1
	} {
		var want string
		for _, pipeline := range []int{1, 2, 3} {
			for _, data := range []int{2, 3, 4} {
				for _, schedule := range []string{"gpipe", "1f1b"} {
					set := append(set[:len(set):len(set)], fmt.Sprintf("layout.pipeline=%d", pipeline), fmt.Sprintf("layout.data=%d", data), "layout.schedule="+schedule)
					b := newBench(t, sim.BenchConfig{Device: d, Network: sim.Unkind, Rounds: supervisor.Rounds{Until: 3}}, 0, set...)
					if want == "" {
						want = b.Weights()
					}
					if b.Weights() != want {
						t.Fatalf("%v: %s by the shares of the plan, want %s", set, b.Weights(), want)
					}
					n := len(b.Plan().Train)
					var first plan.Shares
					for seed := range uint64(2) {
						var text string
						for step, at := range []string{"init step 0", "train step 0", "train step 1"} {
							s := randomShares(n, data, random.Key(seed, uint64(step)))
							if first == "" {
								first = s
							}
							text += fmt.Sprintf("shift %s at trainer of %s\n", s, at)
						}
						faults, err := fault.Parse(text)
						if err != nil {
							t.Fatal(err)
						}
						if o := b.Run(seed, faults, nil); o.Violation != nil || o.Struck != 3 {
							t.Fatalf("%v: %s", set, o)
						}
						runs++
					}
					static := newBench(t, sim.BenchConfig{Device: d, Rounds: supervisor.Rounds{Until: 3}}, 0, append(set, "layout.shares="+string(first))...)
					if static.Weights() != want {
						t.Fatalf("%v by the shares %s: %s, want %s", set, first, static.Weights(), want)
					}
				}
			}
		}
	}
	t.Logf("%d runs", runs)
}
