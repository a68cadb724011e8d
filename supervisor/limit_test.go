package supervisor

import (
	"strings"
	"testing"

	"github.com/troupe-train/troupe/plan"
)

// TestRecoveryUnderALimit: whoever fails, at whatever operation, nobody needs more memory than the plan says; with that as the
// limit of every actor the recovery succeeds. Weights are most of the memory here, so that the helpers are at the limit.
func TestRecoveryUnderALimit(t *testing.T) {
	for _, c := range []struct {
		layout, fault string
		helper        plan.ActorID // holds more than in a run in which nothing happens
	}{
		{"layout.pipeline=2", "panic mirror.p0.d0 at hold of train step 2", "shard.p0.d0"},
		{"layout.pipeline=2", "panic mirror.p0.d0 at advance of train step 2", "shard.p0.d0"},
		{"layout.pipeline=2", "panic shard.p0.d0 at reduce of train step 2", "mirror.p0.d0"},
		{"layout.pipeline=2", "panic shard.p0.d0 at update of train step 2", ""},
		{"layout.pipeline=2", "panic stage.p0.d0 at backward-weight of train step 2", ""},
		{"layout.data=2", "panic mirror.p0.d1 at hold of train step 2", "shard.p0.d1"},
		{"layout.data=2", "panic shard.p0.d1 at square-norm of train step 2", ""},
		{"layout.pipeline=2 train.precision=bf16", "panic mirror.p0.d0 at hold of train step 2", "shard.p0.d0"},
		{"layout.pipeline=2 train.precision=bf16", "panic shard.p0.d0 at reduce of train step 2", "mirror.p0.d0"},
		{"layout.data=2 train.precision=bf16", "panic stage.p0.d1 at backward-weight of train step 2", ""},
	} {
		t.Run(c.layout+", "+c.fault, func(t *testing.T) {
			set := []string{"model.layers=1", "model.width=64", "model.context=4", "train.batch=2", "train.micro_batch=1", "train.evaluate.batch=0", "train.evaluate.every=0", "layout.pipeline=1", "layout.data=1"}
			set = append(set, strings.Fields(c.layout)...)
			predict := func() (*plan.Plan, int64) {
				t.Helper()
				job := testRunJob(t, set...)
				m, err := BuildModel(job, 16)
				must(t, err)
				p, err := plan.New(job, m, plan.Options{})
				must(t, err)
				var most int64
				for _, a := range p.Predicted.Actors {
					most = max(most, a.Recovery)
				}
				return p, most
			}
			p, most := predict()
			job := testRunJob(t, set...)
			job.Train.MemoryLimit = most
			r, told, err := runJob(t, job, c.fault)
			if err != nil || r.Restarts != 1 {
				t.Fatalf("%+v, %v\n%s", r, err, strings.Join(told, "\n"))
			}
			for _, a := range p.Predicted.Actors {
				got := r.PeakBytes[a.ID]
				// A stage is charged for its gradients until the last who has them gives them back, which may be late.
				if a.ID.Role() != "stage" && got > a.Recovery {
					t.Errorf("%s held %d bytes; the plan says at most %d", a.ID, got, a.Recovery)
				} else if a.ID == c.helper && got <= a.Peak() {
					t.Errorf("%s held %d bytes, no more than the %d of a run without faults: it was no help", a.ID, got, a.Peak())
				}
			}
		})
	}
}
