package stage_test

import (
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/stage"
)

// takes is how many objects a run of f takes from the Go heap, when memory has come to be used again in the same places.
func takes(f func()) float64 {
	for range 50 {
		f()
	}
	return testing.AllocsPerRun(20, f)
}

// TestPassesTakeNoHeap: in a step like the one before, the passes of a chunk take nothing from the Go heap.
func TestPassesTakeNoHeap(t *testing.T) {
	for _, store := range []device.DType{device.F32, device.BF16} {
		t.Run(store.String(), func(t *testing.T) { passesTakeNoHeap(t, store) })
	}
}

func passesTakeNoHeap(t *testing.T, store device.DType) {
	b := newBench(t, store)
	all := plan.Range{Lo: 0, Hi: len(b.model.Layers)}
	w := b.weights(all)
	defer w.Release()
	c := stage.NewChunk(w, all)
	mb := b.batch(true)
	defer release(mb)
	g := b.gradients(all)
	gradient := func(bucket, u int) device.Slice { return g[use{bucket, u}] }
	err := b.do(func(k device.Kernels) error {
		var failed error
		check := func(err error) {
			if err != nil {
				failed = err
			}
		}
		n := takes(func() {
			y, tape, err := c.Forward(k, mb, device.Slice{})
			check(err)
			y.Release()
			_, err = c.BackwardInput(k, tape, device.Slice{})
			check(err)
			check(c.BackwardWeight(k, tape, gradient))
			tape.ReleaseStash()
			tape.ReleaseSaved()
		})
		if n != 0 {
			t.Errorf("three passes take %v objects", n)
		}
		return failed
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range g {
		s.Release()
	}
}

// TestOperationsTakeNoHeap: nor do the operations of a stage, with their payloads.
func TestOperationsTakeNoHeap(t *testing.T) {
	for _, store := range []device.DType{device.F32, device.BF16} {
		t.Run(store.String(), func(t *testing.T) { operationsTakeNoHeap(t, store) })
	}
}

func operationsTakeNoHeap(t *testing.T, store device.DType) {
	r := newRigOf(t, store)
	mb := r.batch(true)
	tokens, targets := machine.Tensor{Slice: mb.Tokens}, machine.Tensor{Slice: mb.Targets}
	piece := r.tensor(r.model.Buckets()[0].Len, func(int) float64 { return 1 })
	round := plan.Round{Phase: plan.TrainPhase}
	type step struct {
		op *plan.Op
		in []machine.Payload
	}
	var steps []step
	for m := range 2 {
		steps = append(steps,
			step{r.op(plan.TrainPhase, plan.Forward, m), []machine.Payload{tokens, targets}},
			step{r.op(plan.TrainPhase, plan.BackwardInput, m), []machine.Payload{nil}},
			step{r.op(plan.TrainPhase, plan.BackwardWeight, m), []machine.Payload{nil, nil}})
	}
	add := step{r.op(plan.TrainPhase, plan.Add, 0), make([]machine.Payload, 2)}
	load := step{r.op(plan.InitPhase, plan.Load, 0), []machine.Payload{piece}}
	held := make([]machine.Payload, 0, 100)
	err := r.do(func(k device.Kernels) error {
		var failed error
		perform := func(s step) []machine.Payload {
			out, err := machine.Launch{Run: &machine.Run{Round: round, Op: s.op, In: s.in}}.Perform(k, r.x)
			if err != nil {
				failed = err
			}
			for _, p := range out {
				if p != nil {
					held = append(held, p)
				}
			}
			return out
		}
		n := takes(func() {
			weight := 0
			for _, s := range steps {
				out := perform(s)
				if s.op.Kind == plan.BackwardWeight && len(out) > 0 {
					add.in[weight] = out[0]
					weight++
				}
			}
			if failed == nil {
				perform(add)
				perform(load)
			}
			for _, p := range held {
				p.Release()
			}
			held = held[:0]
		})
		if n != 0 {
			t.Errorf("a step takes %v objects", n)
		}
		return failed
	})
	if err != nil {
		t.Fatal(err)
	}
	piece.Release()
	release(mb)
	r.x.Close()
	if n := r.account.Held(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}
