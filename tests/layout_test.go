package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/supervisor"
)

// TestWeightsDoNotDependOnTheLayout trains each kind of job in many layouts.
func TestWeightsDoNotDependOnTheLayout(t *testing.T) {
	for _, c := range []struct {
		name      string
		set       []string
		pipelines []int
		data      []int
		more      [][]string // further layouts
	}{
		{
			name: "dropout", set: []string{"model.dropout=0.1"},
			pipelines: []int{1, 2, 3, 4}, data: []int{1, 2, 4, 3, 5},
			more: [][]string{{"train.threads=1"}, {"train.threads=2"}, {"train.threads=3"}, {"layout.pipeline=3", "train.threads=5"}},
		},
		{
			name: "more stages than layers", pipelines: []int{1, 2, 3, 9}, data: []int{1},
			more: [][]string{
				{"layout.pipeline=2", "layout.stages=1,6"}, // a stage of the embedding alone
				{"layout.pipeline=3", "layout.stages=4,0,3"},
				{"layout.pipeline=4", "layout.stages=0,6,1,0", "layout.data=2"},
			},
		},
		{name: "seven blocks", set: []string{"model.layers=7", "train.steps=5"}, pipelines: []int{1, 2, 3, 9}, data: []int{1, 3}},
		{name: "one micro-batch", set: []string{"train.batch=2", "train.micro_batch=2"}, pipelines: []int{1, 4}, data: []int{1}},
		{name: "ragged", set: []string{"train.micro_batch=4", "model.dropout=0.1"}, pipelines: []int{1, 3}, data: []int{1, 2, 3}},
		{name: "llama", set: []string{"model.kind=llama", "model.dropout=0.1"}, pipelines: []int{1, 3}, data: []int{1, 2},
			more: [][]string{{"train.threads=1"}, {"train.threads=3"}}},
		{name: "bf16", set: []string{"train.precision=bf16", "model.dropout=0.1"}, pipelines: []int{1, 2, 3}, data: []int{1, 2, 3},
			more: [][]string{{"train.threads=1"}, {"train.threads=3"}}},
		{name: "bf16 llama", set: []string{"train.precision=bf16", "model.kind=llama", "train.micro_batch=4"}, pipelines: []int{1, 3}, data: []int{1, 2}},
		{name: "sgd", set: []string{"train.optimizer.kind=sgd", "train.optimizer.momentum=0.9", "train.steps=5"}, pipelines: []int{1, 3}, data: []int{1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var layouts [][]string
			for _, schedule := range []string{"1f1b", "gpipe"} {
				for _, p := range c.pipelines {
					for _, d := range c.data {
						layouts = append(layouts, []string{
							fmt.Sprintf("layout.pipeline=%d", p), fmt.Sprintf("layout.data=%d", d), "layout.schedule=" + schedule,
						})
					}
				}
			}
			if testing.Short() {
				layouts = layouts[len(layouts)-1:]
			} else {
				layouts = append(layouts, c.more...)
			}
			want := train(t, c.set)
			if want.Steps == 0 || *want.LossLast >= *want.LossFirst {
				t.Errorf("after %d steps the loss has gone from %g to %g", want.Steps, *want.LossFirst, *want.LossLast)
			}
			for _, layout := range layouts {
				t.Run(strings.Join(layout, " "), func(t *testing.T) {
					t.Parallel()
					got := train(t, with(c.set, layout...))
					same(t, layout, got, want)
				})
			}
		})
	}
}

// TestFingerprint: the pipeline starts with the very weights of the model that was asked for. The model is
// initialised here without any actor; the run takes one step that changes nothing.
func TestFingerprint(t *testing.T) {
	j := job(t, "train.steps=1", "train.optimizer.lr=0", "train.optimizer.min_lr=0")
	m, err := supervisor.BuildModel(j, 256)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Layers) != smallLayers {
		t.Fatalf("the model has %d layers, want %d", len(m.Layers), smallLayers)
	}
	want := initial(m, j.Train.Seed)
	for _, layout := range [][]string{{"layout.pipeline=1"}, {"layout.pipeline=2"}, {"layout.pipeline=3", "layout.data=2"}, {"layout.pipeline=9"}} {
		got := train(t, with(layout, "train.steps=1", "train.optimizer.lr=0", "train.optimizer.min_lr=0"))
		if got.WeightsSHA256 != want || got.Parameters != m.Len() {
			t.Errorf("%v: %d parameters with the fingerprint %s, want %d with %s", layout, got.Parameters, got.WeightsSHA256, m.Len(), want)
		}
	}
}

// initial is the hash of the weights of a model on a single device before its first step.
func initial(m *model.Model, seed uint64) string {
	vectors := make([][]float32, len(m.Buckets()))
	for i, b := range m.Buckets() {
		vectors[i] = make([]float32, b.Len)
		for j, p := range b.Params {
			model.Initialize(p, seed, vectors[i][b.Offsets[j]:b.Offsets[j]+p.Len()], 0)
		}
	}
	return model.Hash(m, func(bucket int) []float32 { return vectors[bucket] })
}
