package optim_test

import (
	"math"
	"slices"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
)

// TestSkip: a step that is skipped changes no bit of weights and moments, at the shard and at its mirror, though its gradient is
// not a number; and the step after it is as if its gradient had never been.
func TestSkip(t *testing.T) {
	p := ledgerPlan(t, 1, 1, "adamw")
	b := newBench(t, p)
	id := plan.ShardID(0, 0)
	release(b.must(id, plan.InitPhase, 0, plan.Restore, 0)...)
	b.must(mirror(id), plan.InitPhase, 0, plan.Restore, 0)
	step := func(s int64, value func(bucket, i int) float32, verdict float64) {
		b.must(id, plan.TrainPhase, s, plan.Advance, 0)
		release(b.must(mirror(id), plan.TrainPhase, s, plan.Advance, 0)...)
		v := b.scalar(verdict)
		var grads []machine.Payload
		for _, part := range p.Parts(0, 0) {
			g := make([]float32, part.Range.Len())
			for i := range g {
				g[i] = value(part.Bucket, i)
			}
			grads = append(grads, b.tensor(g))
			release(b.must(id, plan.TrainPhase, s, plan.Update, part.Bucket, grads[len(grads)-1], v)...)
		}
		b.must(mirror(id), plan.TrainPhase, s, plan.Hold, 0, append(grads, v)...)
		release(append(grads, v)...)
	}
	state := func(s int64) []float32 {
		b.must(id, plan.SnapshotPhase, s, plan.Advance, 0)
		out := b.must(id, plan.SnapshotPhase, s, plan.Collect, 0)
		values := slices.Clone(cpu.Float32s(out[0].(machine.Tensor).Slice))
		release(out...)
		release(b.must(mirror(id), plan.SnapshotPhase, s, plan.Advance, 0)...)
		copied := b.must(mirror(id), plan.SnapshotPhase, s, plan.Offer, 0)
		if !slices.Equal(cpu.Float32s(copied[0].(machine.Tensor).Slice), values) {
			t.Errorf("step %d: the mirror's state is another one", s)
		}
		release(copied...)
		return values
	}
	usual := func(bucket, i int) float32 { return gradient(0, bucket, i) }
	step(0, usual, 0.5)
	before := state(1)
	step(1, func(int, int) float32 { return float32(math.NaN()) }, optim.Skip)
	if !slices.Equal(state(2), before) {
		t.Error("a skipped step has changed the state")
	}
	step(2, usual, 0.5)
	for i, v := range state(3) {
		if v != v {
			t.Fatalf("element %d is not a number", i)
		}
	}
}
