package sim_test

import (
	"fmt"
	"testing"

	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/sim"
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
		{[]string{"train.batch=7", "train.micro_batch=1", "train.optimizer.kind=sgd", "train.optimizer.momentum=0.9", "model.layers=5"}, 7},
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
