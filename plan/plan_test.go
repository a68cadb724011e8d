package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/plan/schedule"
	"pgregory.net/rapid"
)

// TestLayouts makes plans over layouts, schedules and ragged batches; New checks each of them.
func TestLayouts(t *testing.T) {
	for _, n := range []int{1, 2, 7} {
		m := toy(n)
		for _, name := range schedule.Names() {
			for _, pipeline := range []int{1, 2, 3, 4, 9} {
				for data := 1; data <= 5; data++ {
					for _, batch := range []int{1, 4, 10, 18} {
						j := toyJob(batch, min(4, batch), pipeline, data, name)
						if ceil(batch, 4) < data {
							continue
						}
						for _, resume := range []bool{false, true} {
							if _, err := New(j, m, Options{Resume: resume}); err != nil {
								t.Fatalf("%d layers, pipeline %d, data %d, batch %d, %s: %v", n, pipeline, data, batch, name, err)
							}
						}
					}
				}
			}
		}
	}
}

// TestRandomLayouts also draws the stages by hand, empty ranks included.
func TestRandomLayouts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layers := rapid.IntRange(1, 9).Draw(t, "layers")
		pipeline := rapid.IntRange(1, 10).Draw(t, "pipeline")
		data := rapid.IntRange(1, 5).Draw(t, "data")
		micro := rapid.IntRange(1, 4).Draw(t, "micro")
		batch := rapid.IntRange((data-1)*micro+1, data*micro+20).Draw(t, "batch")
		j := toyJob(max(batch, micro), micro, pipeline, data, rapid.SampledFrom(schedule.Names()).Draw(t, "schedule"))
		j.Train.Evaluate.Batch = rapid.IntRange(0, 9).Draw(t, "held")
		if rapid.Bool().Draw(t, "explicit") {
			j.Layout.Stages = make([]int, pipeline)
			for range layers {
				j.Layout.Stages[rapid.IntRange(0, pipeline-1).Draw(t, "rank")]++
			}
		}
		pl, err := New(j, toy(layers), Options{Nodes: rapid.IntRange(0, 6).Draw(t, "nodes"), Resume: rapid.Bool().Draw(t, "resume")})
		if err != nil {
			t.Fatal(err)
		}
		for d := range data {
			for p := range pipeline {
				live := liveMicroBatches(pl.Program(StageID(p, d), TrainPhase))
				if n := Share(pl.Train, d).Len(); live > n {
					t.Fatalf("stage %d.%d holds %d of %d micro-batches", p, d, live, n)
				}
			}
		}
	})
}

// TestLive is the memory law of the schedules: 1F1B holds min(p-r, M) micro-batches on rank r, GPipe all.
func TestLive(t *testing.T) {
	for _, micro := range []int{1, 2, 3, 8} {
		for _, name := range schedule.Names() {
			pl, err := New(toyJob(micro, 1, 4, 1, name), toy(7), Options{})
			if err != nil {
				t.Fatal(err)
			}
			for r := range 4 {
				want := micro
				if name == "1f1b" {
					want = min(4-r, micro)
				}
				if got := liveMicroBatches(pl.Program(StageID(r, 0), TrainPhase)); got != want {
					t.Errorf("%s, %d micro-batches, rank %d: %d live, want %d", name, micro, r, got, want)
				}
			}
		}
	}
}

// TestDeterministic: two plans of one job are equal in every operation.
func TestDeterministic(t *testing.T) {
	text := func() string {
		pl, err := New(toyJob(22, 4, 3, 2, "1f1b"), toy(7), Options{Nodes: 3})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		fmt.Fprintln(&b, pl.Stages, pl.Train, pl.Held, pl.Buckets, pl.Actors, pl.Predicted)
		for ph := range Phases {
			for _, a := range pl.Actors {
				fmt.Fprintln(&b, *pl.Program(a.ID, ph))
			}
		}
		return b.String()
	}
	if a, b := text(), text(); a != b {
		t.Fatal("two plans of one job differ")
	}
}
