package supervisor

import (
	"strings"
	"testing"

	"github.com/troupe-train/troupe/plan"
)

// TestRemarks: what is of no effect in a run is told, and nothing else is.
func TestRemarks(t *testing.T) {
	for _, c := range []struct {
		name     string
		set      func(*plan.Job)
		first    int64
		launched bool
		says     string
	}{
		{"nothing", func(*plan.Job) {}, 0, false, ""},
		{"goes on", func(*plan.Job) {}, 5, false, ""},
		{"done", func(*plan.Job) {}, 6, false, "train.steps is 6, and the checkpoint is of step 6"},
		{"more than done", func(*plan.Job) {}, 9, true, "train.steps is 6, and the checkpoint is of step 9"},
		{"spares in one process", func(j *plan.Job) { j.Cluster.Spares = 2 }, 0, false, "cluster.spares is 2, which is of no effect"},
		{"spares", func(j *plan.Job) { j.Cluster.Spares = 2 }, 0, true, ""},
		{"no stages", func(j *plan.Job) { j.Layout.Stages = []int{} }, 0, false, "layout.stages is an empty list"},
		{"a limit that a recovery breaks", func(j *plan.Job) { j.Train.MemoryLimit = 40000 }, 0, false, "train.memory_limit is 40000 bytes, and "},
		{"a limit that nothing breaks", func(j *plan.Job) { j.Train.MemoryLimit = 1 << 30 }, 0, false, ""},
	} {
		job := testRunJob(t)
		c.set(job)
		m, err := BuildModel(job, 16)
		must(t, err)
		p, err := plan.New(job, m, plan.Options{})
		must(t, err)
		got := strings.Join(remarks(p, c.first, c.launched), "\n")
		if (c.says == "") != (got == "") || !strings.HasPrefix(strings.TrimPrefix(got, "note: "), c.says) || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", c.name, got, c.says)
		}
	}
}

// TestFaultsThatMiss: a fault that never struck is told of at the end.
func TestFaultsThatMiss(t *testing.T) {
	faults := "panic stage.p0.d0 at forward of train step 2\npanic stage.p0.d0 at forward micro-batch 7 of train step 2\npanic stage.p0.d0 at forward of train step 6"
	_, told, err := runJob(t, testRunJob(t), faults)
	must(t, err)
	missed := 0
	for _, line := range told {
		if strings.Contains(line, "never struck") {
			missed++
			if strings.Contains(line, "forward of train step 2") {
				t.Errorf("%s", line)
			}
		}
	}
	if missed != 2 {
		t.Errorf("%d faults never struck, want 2:\n%s", missed, strings.Join(told, "\n"))
	}
}
