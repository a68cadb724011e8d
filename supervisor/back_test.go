package supervisor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/checkpoint"
	"github.com/troupe-train/troupe/plan/fault"
)

// TestBackToAnOlderCheckpoint: a run that has gone back to an older checkpoint, and ends soon after, leaves a folder that passes the
// audit and from which --resume goes on, however many checkpoints are kept. It goes to the seed only if there is none.
func TestBackToAnOlderCheckpoint(t *testing.T) {
	want, err := undisturbed()
	must(t, err)
	for _, c := range []struct {
		keep int
		how  string
		from []string // the checkpoints gone back to
	}{
		{0, "interrupted", []string{"step-00000004", "step-00000002"}},
		{1, "interrupted", []string{"step-00000004", "step-00000004"}},
		{2, "interrupted", []string{"step-00000004", "step-00000002"}},
		{0, "gives up", []string{"step-00000004", "step-00000002"}},
		{1, "gives up", []string{"step-00000004", "step-00000004"}},
		{2, "gives up", []string{"step-00000004", "step-00000002"}},
	} {
		t.Run(fmt.Sprintf("keep %d, %s", c.keep, c.how), func(t *testing.T) {
			dir := t.TempDir()
			job := testRunJob(t, "save.every=2", fmt.Sprintf("save.keep=%d", c.keep), "save.dir="+dir,
				"supervisor.restarts=0", "supervisor.resumes=2", "supervisor.mirror=false")
			faults := "panic stage.p0.d0 at forward micro-batch 0 of train step 5 times 2"
			if c.how == "gives up" {
				faults += "0\npanic stage.p0.d0 at forward micro-batch 0 number 1 of train step 3 times 20"
			}
			list, err := fault.Parse(faults)
			must(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var from, told []string
			r, err := Run(ctx, job, testOptions(t, job, WithFaults(list), WithProgress(func(p Progress) {
				switch {
				case p.Note != nil && strings.HasPrefix(*p.Note, "going on at train step"):
					from = append(from, (*p.Note)[strings.LastIndexAny(*p.Note, `/\ `)+1:])
				case p.Decision != nil:
					told = append(told, *p.Decision)
				case p.Step != nil && len(from) == 2 && c.how == "interrupted":
					cancel()
				}
			}))...)
			if (err == nil) != (c.how == "interrupted") || !slices.Equal(from, c.from) {
				t.Fatalf("%v, from %v\n%s", err, from, strings.Join(told, "\n"))
			}
			if but := strings.Contains(strings.Join(told, "\n"), "newest checkpoint but 1: "); but != (c.keep != 1) {
				t.Error(strings.Join(told, "\n"))
			}
			a, err := AuditRun(dir)
			if err != nil || a.Checkpoint > a.Steps {
				t.Fatalf("%+v, %v", a, err)
			}
			if r != nil {
				if c, err := checkpoint.Open(dir); err != nil || c.Path() != r.Checkpoint || c.Meta().Step != r.Steps {
					t.Errorf("the newest is %v, and the run says %s, %d steps: %v", c, r.Checkpoint, r.Steps, err)
				}
			}
			if r, told, err := runJob(t, job, "", WithResume()); err != nil || r.WeightsSHA256 != want {
				t.Fatalf("%v\n%s", err, strings.Join(told, "\n"))
			}
			if a, err := AuditRun(dir); err != nil || a.Steps != 6 || a.Checkpoint != 6 {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
}
