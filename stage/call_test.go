package stage_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/stage"
)

// probe is a segment that writes down how it is called.
type probe struct {
	spec  model.Spec
	calls *[]string
}

func (p probe) Spec() model.Spec { return p.spec }
func (p probe) Forward(_ device.Kernels, c *model.Call) {
	p.note("F", c)
	for _, s := range c.Out {
		set(s, func(int) float64 { return 1 })
	}
}
func (p probe) BackwardInput(_ device.Kernels, c *model.Call)  { p.note("B", c) }
func (p probe) BackwardWeight(_ device.Kernels, c *model.Call) { p.note("W", c) }
func (p probe) Cost(rows, context int) model.Cost              { return model.Cost{Forward: 1} }

func (p probe) note(phase string, c *model.Call) {
	lens := func(list []device.Slice) []int {
		out := []int{}
		for _, s := range list {
			out = append(out, s.Len)
		}
		return out
	}
	*p.calls = append(*p.calls, fmt.Sprintf("%s %s rows %d context %d seed %d step %d sample %d layer %d training %v scale %.4f tokens %d targets %d params %v in %v out %v saved %v stash %v dout %v din %v grads %v work %d",
		phase, p.spec.Name, c.Rows, c.Context, c.Seed, c.Step, c.Sample, c.Layer, c.Training, c.LossScale, c.Tokens.Len, c.Targets.Len,
		lens(c.Params), lens(c.In), lens(c.Out), lens(c.Saved), lens(c.Stash), lens(c.DOut), lens(c.DIn), lens(c.Grads), c.Work.Len))
}

// TestCalls: a segment is called with what its Spec asks for, and with the numbers that key its
// random numbers, for a short last micro-batch too.
func TestCalls(t *testing.T) {
	var calls []string
	x := []model.Port{{Name: "x", PerToken: 3}}
	tied := model.Param{Name: "tied", Shape: []int{5}}
	first := probe{model.Spec{Name: "first", Tokens: true, Params: []model.Param{tied, {Name: "a", Shape: []int{2}}}, Out: x,
		Saved: []model.Port{{Name: "s", PerRow: 7}}, Work: func(rows, context int) int { return 0 }}, &calls}
	last := probe{model.Spec{Name: "last", Targets: true, Params: []model.Param{{Name: "b", Shape: []int{4}}, tied}, In: x,
		Out: []model.Port{{Name: "loss", PerToken: 1, Float: true}}, Stash: []model.Port{{Name: "d", PerToken: 2}},
		Work: func(rows, context int) int { return 10*rows + context }}, &calls}
	m, err := model.New("probe", 4, 9, []model.Layer{{Name: "one", Segments: []model.Segment{first}}, {Name: "two", Segments: []model.Segment{last}}})
	if err != nil {
		t.Fatal(err)
	}
	job := plan.Defaults()
	job.Name = "probe"
	job.Train.Steps, job.Train.Batch, job.Train.MicroBatch, job.Train.Evaluate.Batch, job.Train.Seed = 9, 5, 3, 1, 42
	p, err := plan.New(job, m, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := cpu.New(cpu.Options{})
	defer d.Close()
	b := &bench{t, d, nil, device.F32, device.NewAccount("stage.p0.d0", 0), m}
	if b.stream, err = d.OpenStream("test", 1); err != nil {
		t.Fatal(err)
	}
	stageOf, err := stage.NewExecutor(p, alone, d, b.account)
	if err != nil {
		t.Fatal(err)
	}
	defer stageOf.Close()
	r := &rig{b, p, stageOf}
	tokens := func(rows int) machine.Tensor {
		s, err := d.Alloc(b.account, device.Messages, device.I32, 4*rows)
		if err != nil {
			t.Fatal(err)
		}
		return machine.Tensor{Slice: s}
	}
	for _, c := range []struct {
		round plan.Round
		kind  plan.OpKind
		micro int
		rows  int
	}{
		{plan.Round{Step: 6, Phase: plan.EvaluatePhase}, plan.Forward, 0, 1},
		{plan.Round{Step: 6, Phase: plan.TrainPhase}, plan.Forward, 1, 2},
		{plan.Round{Step: 6, Phase: plan.TrainPhase}, plan.BackwardInput, 1, 2},
		{plan.Round{Step: 6, Phase: plan.TrainPhase}, plan.BackwardWeight, 1, 2},
	} {
		op := r.op(c.round.Phase, c.kind, c.micro)
		in := make([]machine.Payload, len(op.Reads))
		for i, v := range op.Reads {
			if v.Kind == plan.Tokens || v.Kind == plan.Targets {
				in[i] = tokens(c.rows)
			}
		}
		err := b.do(func(k device.Kernels) error {
			out, err := machine.Launch{Run: &machine.Run{Round: c.round, Op: op, In: in}}.Perform(k, r.x)
			for _, o := range out {
				if o != nil {
					o.Release()
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range in {
			if x != nil {
				x.Release()
			}
		}
	}
	want := []string{
		"F first rows 1 context 4 seed 42 step 6 sample 0 layer 0 training false scale 0.2500 tokens 4 targets 0 params [5 2] in [] out [12] saved [7] stash [] dout [] din [] grads [] work 0",
		"F last rows 1 context 4 seed 42 step 6 sample 0 layer 1 training false scale 0.2500 tokens 0 targets 4 params [4 5] in [12] out [4] saved [] stash [] dout [] din [] grads [] work 14",
		"F first rows 2 context 4 seed 42 step 6 sample 3 layer 0 training true scale 0.0500 tokens 8 targets 0 params [5 2] in [] out [24] saved [14] stash [] dout [] din [] grads [] work 0",
		"F last rows 2 context 4 seed 42 step 6 sample 3 layer 1 training true scale 0.0500 tokens 0 targets 8 params [4 5] in [24] out [8] saved [] stash [] dout [] din [] grads [] work 24",
		"B last rows 2 context 4 seed 42 step 6 sample 3 layer 1 training true scale 0.0500 tokens 0 targets 8 params [4 5] in [24] out [8] saved [] stash [16] dout [0] din [24] grads [] work 24",
		"B first rows 2 context 4 seed 42 step 6 sample 3 layer 0 training true scale 0.0500 tokens 8 targets 0 params [5 2] in [] out [24] saved [14] stash [] dout [24] din [] grads [] work 0",
		"W first rows 2 context 4 seed 42 step 6 sample 3 layer 0 training true scale 0.0500 tokens 8 targets 0 params [5 2] in [] out [24] saved [14] stash [] dout [24] din [] grads [5 2] work 0",
		"W last rows 2 context 4 seed 42 step 6 sample 3 layer 1 training true scale 0.0500 tokens 0 targets 8 params [4 5] in [24] out [8] saved [] stash [16] dout [0] din [] grads [4 5] work 24",
	}
	if !slices.Equal(calls, want) {
		for i := range max(len(calls), len(want)) {
			if i >= len(calls) || i >= len(want) || calls[i] != want[i] {
				t.Errorf("call %d is\n%s\nwant\n%s", i, append(calls, make([]string, 9)...)[i], append(want, make([]string, 9)...)[i])
			}
		}
	}
	if n := b.account.HeldFor(device.Activations); n != 0 {
		t.Errorf("%d bytes of activations are left", n)
	}
}
