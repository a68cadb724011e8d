package optim_test

import (
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
)

// TestOperationsTakeNoHeap: in a step like the one before, the operations of a shard and of its mirror
// take nothing from the Go heap.
func TestOperationsTakeNoHeap(t *testing.T) {
	for _, precision := range []string{plan.F32, plan.BF16} {
		t.Run(precision, func(t *testing.T) { operationsTakeNoHeap(t, precision) })
	}
}

func operationsTakeNoHeap(t *testing.T, precision string) {
	p := ledgerPlan(t, 1, 1, "adamw")
	job := *p.Job
	job.Train.Precision = precision
	p.Job = &job
	b := newBench(t, p)
	id := plan.ShardID(0, 0)
	release(b.must(id, plan.InitPhase, 0, plan.Restore, 0)...)
	b.must(mirror(id), plan.InitPhase, 0, plan.Restore, 0)
	verdict := b.scalar(0.5)
	reduced := map[int]machine.Payload{}
	for _, part := range p.Parts(0, 0) {
		reduced[part.Bucket] = b.tensor(make([]float32, part.Range.Len()))
	}
	type work struct {
		x  *optim.Executor
		op *plan.Op
		in []machine.Payload
	}
	var works []work
	for _, actor := range []plan.ActorID{id, mirror(id)} {
		ops := p.Program(actor, plan.TrainPhase).Ops
		for i := range ops {
			op := &ops[i]
			switch op.Kind {
			case plan.Advance, plan.Reduce, plan.SquareNorm, plan.Update, plan.Hold:
			default:
				continue
			}
			w := work{b.shards[actor], op, nil}
			for _, v := range op.Reads {
				if v.Kind == plan.Verdict {
					w.in = append(w.in, verdict)
				} else {
					w.in = append(w.in, reduced[v.Index])
				}
			}
			works = append(works, w)
		}
	}
	round := plan.Round{Phase: plan.TrainPhase}
	done := make(chan error, 1)
	b.stream.Do(func(k device.Kernels) error {
		var failed error
		step := func() {
			for _, w := range works {
				out, err := w.x.Run(k, round, w.op, w.in)
				if err != nil {
					failed = err
				}
				for _, o := range out {
					o.Release()
				}
			}
			round.Step++
		}
		for range 50 { // until memory comes to be used again in the same places
			step()
		}
		if n := testing.AllocsPerRun(20, step); n != 0 {
			t.Errorf("a step takes %v objects", n)
		}
		return failed
	}, func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	release(verdict)
	for _, r := range reduced {
		release(r)
	}
}
