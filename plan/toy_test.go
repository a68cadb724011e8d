package plan

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
)

// block is a segment with the shapes of a layer and no kernels.
type block struct {
	spec model.Spec
	cost float64
}

func (b block) Spec() model.Spec                           { return b.spec }
func (b block) Forward(device.Kernels, *model.Call)        {}
func (b block) BackwardInput(device.Kernels, *model.Call)  {}
func (b block) BackwardWeight(device.Kernels, *model.Call) {}
func (b block) Cost(rows, context int) model.Cost {
	n := b.cost * float64(rows*context)
	return model.Cost{Forward: n, BackwardInput: n, BackwardWeight: n}
}

// toy is a model of n layers: an embedding, blocks, and a head with the loss that is tied to the embedding.
func toy(n int) *model.Model {
	const context, vocab, width = 8, 50, 60
	x := []model.Port{{Name: "x", PerToken: width}}
	work := func(rows, context int) int { return rows * context }
	tied := model.Param{Name: "embedding", Shape: []int{vocab, width}, Init: model.Init{Kind: model.Normal, Std: 0.02}}
	var layers []model.Layer
	for i := range n {
		sp := model.Spec{Name: fmt.Sprintf("segment%d", i), In: x, Out: x, Work: work,
			Saved: []model.Port{{Name: "s", PerToken: 2 * width}}, Stash: []model.Port{{Name: "d", PerToken: width}}}
		b := block{spec: sp, cost: 2 * width * width}
		if i == 0 {
			b.spec.In, b.spec.Tokens, b.cost = nil, true, width
			b.spec.Params = append(b.spec.Params, tied)
		}
		if i == n-1 {
			b.spec.Out, b.spec.Targets, b.cost = []model.Port{{Name: "loss", PerToken: 1, Float: true}}, true, 2*vocab*width
			if n > 1 {
				b.spec.Params = append(b.spec.Params, tied)
			}
		}
		b.spec.Params = append(b.spec.Params,
			model.Param{Name: fmt.Sprintf("w%d", i), Shape: []int{width, width}, Decay: true},
			model.Param{Name: fmt.Sprintf("b%d", i), Shape: []int{width}})
		layers = append(layers, model.Layer{Name: fmt.Sprintf("layer%d", i), Segments: []model.Segment{b}})
	}
	m, err := model.New("toy", context, vocab, layers)
	if err != nil {
		panic(err)
	}
	return m
}

// toyJob is a legal job for a toy.
func toyJob(batch, micro, pipeline, data int, schedule string) *Job {
	j := Defaults()
	j.Name = "toy"
	j.Model.Layers, j.Model.Width, j.Model.Heads, j.Model.Context = 1, 60, 1, 8
	j.Data.Text = "text"
	j.Train.Steps, j.Train.Batch, j.Train.MicroBatch = 10, batch, micro
	j.Train.Evaluate.Batch = 5
	j.Layout.Pipeline, j.Layout.Data, j.Layout.Schedule = pipeline, data, schedule
	return j
}
