package plan

import (
	"math"
	"testing"

	"github.com/troupe-train/troupe/model"
)

// even is a model of n layers of equal cost.
func even(n int) *model.Model {
	m := toy(n)
	for i := range m.Layers {
		b := m.Layers[i].Segments[0].(block)
		b.cost = 1
		m.Layers[i].Segments[0] = b
	}
	return m
}

// TestBubble: with p equal stages and m micro-batches, F, B and W of one unit each, the pipeline
// fills with p-1 forwards and drains with p-1 input gradients, as a stage hands the gradient on before it
// does W: (p-1)(F+B) / m(F+B+W).
func TestBubble(t *testing.T) {
	for _, name := range []string{"gpipe", "1f1b"} {
		for _, p := range []int{1, 2, 4} {
			for _, m := range []int{1, 4, 16} {
				pl, err := New(toyJob(m, 1, p, 1, name), even(4), Options{})
				if err != nil {
					t.Fatal(err)
				}
				want := float64(p-1) * 2 / float64(3*m)
				if got := pl.Predicted.Bubble; math.Abs(got-want) > 1e-12 {
					t.Errorf("%s, %d stages, %d micro-batches: bubble %g, want %g", name, p, m, got, want)
				}
				if want := float64(3 * 4 * m * 8); pl.Predicted.FLOPs != want {
					t.Errorf("%s, %d stages, %d micro-batches: %g FLOPs, want %g", name, p, m, pl.Predicted.FLOPs, want)
				}
			}
		}
	}
}

// TestMemory counts the bytes of a middle stage and its shard by hand: width 60, context 8, one row
// a micro-batch, one layer of 3660 parameters.
func TestMemory(t *testing.T) {
	const port, bucket = 4 * 8 * 60, 4 * 3660
	j := toyJob(4, 1, 3, 1, "gpipe")
	j.Train.Evaluate.Batch = 0
	pl, err := New(j, toy(3), Options{})
	if err != nil {
		t.Fatal(err)
	}
	stage, shard := pl.Predicted.Actors[2], pl.Predicted.Actors[5]
	if stage.ID != StageID(1, 0) || shard.ID != ShardID(1, 0) {
		t.Fatalf("predicted %v", pl.Predicted.Actors)
	}
	// The highest point is W of the last micro-batch: the gradients of [0,2) and of micro-batch 2,
	// and the one being made; one micro-batch saved (2 ports) and stashed (1); outputs and input
	// gradients of all micro-batches in the outbox; one element a token of scratch.
	want := ActorPrediction{
		ID: StageID(1, 0), Parameters: bucket, Gradients: 3 * bucket,
		Activations: 3 * port, Messages: 8 * port, Workspace: 4 * 8,
		LiveMicroBatches: 4, FLOPs: 4 * 3 * 2 * 60 * 60 * 8,
	}
	want.Recovery = want.Peak() // all neighbours are in this process: what they send again is charged to them
	if stage != want {
		t.Errorf("stage: predicted\n%+v, want\n%+v", stage, want)
	}
	// The highest point of a shard is the update: weights and two moments, the next ones beside them, and the
	// squares of 4 blocks of w and one of b.
	want = ActorPrediction{ID: ShardID(1, 0), Parameters: 2 * bucket, Optimizer: 4 * bucket, Messages: 5 * 8, Recovery: 9*bucket + 40} // the mirror may ask for the state, 3 buckets
	if shard != want {
		t.Errorf("shard: predicted\n%+v, want\n%+v", shard, want)
	}
	if shard.Peak() != 6*bucket+40 {
		t.Errorf("peak is %d", shard.Peak())
	}
	// A mirror in this process holds weights, new ones when it advances, and two moments; the gradient that it
	// keeps is charged to the stage.
	want = ActorPrediction{ID: MirrorID(1, 0), Parameters: 2 * bucket, Optimizer: 2 * bucket, Recovery: 6 * bucket} // so may the shard
	if mirror := pl.Predicted.Actors[8]; mirror != want {
		t.Errorf("mirror: predicted\n%+v, want\n%+v", mirror, want)
	}
}

// TestMemoryOfReduce counts the bytes of a shard in a step: weights and two moments, the next ones beside the old,
// because both are needed until the commit, one sum of each bucket with several parts, and the norm of the blocks.
func TestMemoryOfReduce(t *testing.T) {
	for _, c := range []struct{ data, sums int }{
		{1, 0}, // what comes is the sum itself
		{2, 1}, // two nodes of two micro-batches each: one addition
	} {
		j := toyJob(4, 1, 3, c.data, "1f1b")
		j.Layout.Stages = []int{1, 3, 1}
		pl, err := New(j, toy(5), Options{})
		if err != nil {
			t.Fatal(err)
		}
		var a account
		for _, ph := range []Phase{InitPhase, TrainPhase} {
			for i, actor := range pl.Actors {
				if actor.ID == ShardID(1, 0) {
					measure(pl, ph, i, map[ActorID]int{}, simulate(pl, ph), &a)
				}
			}
		}
		owned, blocks := int64(0), int64(0)
		parts := pl.Parts(1, 0)
		for _, part := range parts {
			owned += 4 * int64(part.Range.Len())
			blocks += int64(len(part.Blocks))
		}
		want := 6*owned + 8*blocks
		want += int64(c.sums) * owned
		if len(parts) != 3 || a.peak != want {
			t.Errorf("data %d: %d parts, peak %d, want %d", c.data, len(parts), a.peak, want)
		}
	}
}

// TestMemoryFromAfar: what comes from another node is charged to the receiver.
func TestMemoryFromAfar(t *testing.T) {
	near, err := New(toyJob(8, 1, 2, 2, "1f1b"), toy(4), Options{})
	if err != nil {
		t.Fatal(err)
	}
	far, err := New(toyJob(8, 1, 2, 2, "1f1b"), toy(4), Options{Nodes: 4})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range near.Predicted.Actors {
		b := far.Predicted.Actors[i]
		if a.ID.Role() == "stage" && b.Peak() <= a.Peak() || b.Peak() < a.Peak() || b.LiveMicroBatches != a.LiveMicroBatches {
			t.Errorf("%s: peak %d on one node, %d on four", a.ID, a.Peak(), b.Peak())
		}
	}
}
