package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/checkpoint"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
)

// TestSaveDirIsDisplaced: a run whose save.dir is removed or replaced in its middle says so and ends, with everything that
// is needed to go on in a place where nobody else's files are.
func TestSaveDirIsDisplaced(t *testing.T) {
	want, err := undisturbed()
	must(t, err)
	put := func(path string) error {
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("something else"), 0o644))
	}
	for _, c := range []struct {
		name string
		at   int64 // committed steps
		do   func(dir string) error
		to   string // behind save.dir
	}{
		{"removed", 3, os.RemoveAll, ""},
		{"removed before the last checkpoint", 6, os.RemoveAll, ""},
		{"renamed", 3, func(dir string) error { return os.Rename(dir, dir+".old") }, ""},
		{"another folder", 3, func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) }, ""},
		{"the folder of somebody else", 3, func(dir string) error {
			return errors.Join(os.RemoveAll(dir), put(filepath.Join(dir, "thesis")))
		}, rescued},
		{"a file", 3, func(dir string) error { return errors.Join(os.RemoveAll(dir), put(dir)) }, rescued},
		{"no journal", 3, func(dir string) error { return os.Remove(filepath.Join(dir, checkpoint.JournalName)) }, ""},
		{"another journal", 3, func(dir string) error {
			path := filepath.Join(dir, checkpoint.JournalName)
			return errors.Join(os.Remove(path), put(path))
		}, rescued},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			job := testRunJob(t, "save.every=2", "save.dir="+dir)
			_, err := disturbed(t, job, c.at, func() error { return c.do(dir) }, "")
			var d *Displaced
			if !errors.As(err, &d) {
				t.Fatalf("it ends with %v", err)
			}
			for _, part := range []string{dir, "train step ", "--resume", filepath.Base(d.Checkpoint)} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in %q", part, err)
				}
			}
			if d.Dir != dir || d.To != dir+c.to || d.Step < c.at-1 || filepath.Dir(d.Checkpoint) != d.To {
				t.Fatalf("%+v", d)
			}
			if a, err := AuditRun(d.To); err != nil || a.Steps != a.Checkpoint {
				t.Errorf("%+v, %v", a, err)
			}
			job.Save.Dir = d.To
			if r, _, err := runJob(t, job, "", WithResume()); err != nil || r.WeightsSHA256 != want {
				t.Errorf("resumed: %+v, %v", r, err)
			}
		})
	}
	t.Run("no place is left", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "run")
		job := testRunJob(t, "save.every=2", "save.dir="+dir)
		r, err := disturbed(t, job, 3, func() error { return errors.Join(os.RemoveAll(dir), put(dir), put(dir+rescued)) }, "")
		if err == nil || r != nil || !strings.Contains(err.Error(), "has not committed") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%+v, %v", r, err)
		}
	})
	// Then the run would go back to a checkpoint: of that nothing is there, and the seed is no answer.
	for name, at := range map[string]string{"and an actor fails before the next commit": "train step 3", "and then an actor fails": "snapshot step 4"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			job := testRunJob(t, "save.every=2", "save.dir="+dir, "supervisor.restarts=0", "supervisor.mirror=false")
			_, err := disturbed(t, job, 3, func() error { return os.Rename(dir, dir+".old") }, "panic stage.p0.d0 at any of "+at)
			d := (*Displaced)(nil)
			if !errors.As(err, &d) {
				t.Fatal(err)
			}
			if d.To != dir || d.Step != 3 || d.Checkpoint != "" || !strings.Contains(err.Error(), "no checkpoint beside it: ") || !strings.Contains(err.Error(), "stage.p0.d0 failed once") {
				t.Errorf("%+v: %v", d, d)
			}
			if l, err := ReadJournal(dir); err != nil || len(l.Steps) < 3 {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
}

// disturbed runs a job and does something, once, when so many steps are committed.
func disturbed(t *testing.T, job *plan.Job, at int64, do func() error, faults string) (*Result, error) {
	list, err := fault.Parse(faults)
	must(t, err)
	return Run(context.Background(), job, testOptions(t, job, WithFaults(list), WithProgress(func(p Progress) {
		if p.Step != nil && p.Step.Step == at {
			if err := do(); err != nil {
				t.Error(err)
			}
		}
	}))...)
}
