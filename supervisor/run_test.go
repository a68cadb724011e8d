package supervisor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-train/troupe/checkpoint"
	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
)

// words are windows of tokens that are a function of the sample's number, from a few that a model can learn; those of
// the samples in noise are drawn from all.
type words struct {
	vocab int
	noise map[int64]bool
}

func (w words) Window(i int64, dst []int32) {
	few := uint64(2)
	if w.noise[i] {
		few = uint64(w.vocab)
	}
	for t := range dst {
		dst[t] = int32(random.Key(uint64(i), uint64(t)) % few)
	}
}

func (w words) Held(j int, dst []int32) { w.Window(int64(1<<40+j), dst) }

const testJob = `
name: toy
model: {layers: 4, width: 16, heads: 2, context: 8, dropout: 0.1}
data: {text: none}
train: {steps: 6, batch: 8, micro_batch: 2, threads: 1, optimizer: {lr: 1e-2}, evaluate: {batch: 4, every: 3}}
layout: {pipeline: 2, data: 2}
supervisor: {backoff: 0.01}
`

// testRunJob is testJob with keys set.
func testRunJob(t testing.TB, set ...string) *plan.Job {
	t.Helper()
	job, err := plan.Parse("toy.yaml", []byte(testJob))
	must(t, err)
	for _, s := range set {
		must(t, job.Set(s))
	}
	must(t, job.Validate())
	return job
}

// testOptions are those of every run of testJob.
func testOptions(t testing.TB, job *plan.Job, more ...Option) []Option {
	t.Helper()
	m, err := BuildModel(job, 16)
	must(t, err)
	return append([]Option{WithModel(m), WithData(words{vocab: 16})}, more...)
}

// runJob runs a job in this process, with faults, and returns what it told.
func runJob(t testing.TB, job *plan.Job, faults string, more ...Option) (*Result, []string, error) {
	t.Helper()
	list, err := fault.Parse(faults)
	must(t, err)
	var mu sync.Mutex
	var told []string
	tell := WithProgress(func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case p.Note != nil:
			told = append(told, *p.Note)
		case p.Decision != nil:
			told = append(told, "decision: "+*p.Decision)
		case p.Recovered != nil:
			told = append(told, p.Recovered.String())
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := Run(ctx, job, append(testOptions(t, job, more...), WithFaults(list), tell)...)
	mu.Lock()
	defer mu.Unlock()
	return r, told, err
}

// undisturbed is the hash of the weights of testJob when nothing happens.
var undisturbed = sync.OnceValues(func() (string, error) {
	job, err := plan.Parse("toy.yaml", []byte(testJob))
	if err != nil {
		return "", err
	}
	if err := job.Validate(); err != nil {
		return "", err
	}
	m, err := BuildModel(job, 16)
	if err != nil {
		return "", err
	}
	r, err := Run(context.Background(), job, WithModel(m), WithData(words{vocab: 16}))
	if err != nil {
		return "", err
	}
	return r.WeightsSHA256, nil
})

// TestOneActorFails: whoever fails, at whatever operation, the weights are those of the run in which nothing happened,
// and nobody else was restarted.
func TestOneActorFails(t *testing.T) {
	want, err := undisturbed()
	must(t, err)
	for _, c := range []struct{ fault, who string }{
		{"panic stage.p0.d0 at forward micro-batch 0 of train step 2", "stage.p0.d0"},
		{"panic stage.p0.d1 at forward micro-batch 3 of train step 0", "stage.p0.d1"},
		{"panic stage.p1.d0 at backward-input micro-batch 1 of train step 2", "stage.p1.d0"},
		{"panic stage.p1.d1 at backward-weight micro-batch 2 of train step 5", "stage.p1.d1"},
		{"panic stage.p1.d0 at forward of evaluate step 3", "stage.p1.d0"},
		{"panic stage.p0.d0 at load of train step 1", "stage.p0.d0"},
		{"panic shard.p0.d0 at reduce of train step 2", "shard.p0.d0"},
		{"panic shard.p1.d1 at square-norm of train step 2", "shard.p1.d1"},
		{"panic shard.p1.d0 at update of train step 3", "shard.p1.d0"},
		{"panic shard.p1.d0 at advance of train step 3", "shard.p1.d0"},
		{"panic mirror.p1.d0 at advance of train step 3", "mirror.p1.d0"},
		{"panic mirror.p0.d1 at hold of train step 2", "mirror.p0.d1"},
		{"panic trainer at decide of train step 2", "trainer"},
		{"panic trainer at feed of train step 2", "trainer"},
		{"panic trainer at finish of train step 2", "trainer"},
		{"panic trainer at finish of snapshot step 6", "trainer"},
		{"kill stage.p0.d0 at send value activation micro-batch 1 of train step 2", "stage.p0.d0"},
		{"kill stage.p1.d1 at receive value parameters of train step 2", "stage.p1.d1"},
		{"kill shard.p0.d1 at receive value gradient number 3 of train step 2", "shard.p0.d1"},
		{"kill shard.p1.d1 at restore of init step 0", "shard.p1.d1"},
		{"kill mirror.p1.d1 at receive value verdict of train step 4", "mirror.p1.d1"},
		{"kill trainer at receive value report number 2 of train step 2", "trainer"},
		{"kill trainer at send value start number 2 of train step 2", "trainer"},
		{"kill trainer at send value start number 7 of train step 2", "trainer"},
		{"panic trainer at send value start number 7 of evaluate step 3", "trainer"},
		{"hang stage.p1.d0 at forward micro-batch 1 of train step 2", "stage.p1.d0"},
		{"hang stage.p0.d0 at send value activation micro-batch 1 of train step 2", "stage.p0.d0"},
		{"hang shard.p0.d1 at receive value verdict of train step 2", "shard.p0.d1"},
		{"hang trainer at send value start of train step 2", "trainer"},
		{"hang trainer at send value start number 7 of train step 2", "trainer"},
		{"hang trainer at decide of train step 2", "trainer"},
		{"hang trainer at receive value report number 2 of train step 2", "trainer"},
	} {
		t.Run(strings.ReplaceAll(c.fault, " ", "_"), func(t *testing.T) {
			job := testRunJob(t)
			if strings.HasPrefix(c.fault, "hang") {
				job = testRunJob(t, "supervisor.deadline=1")
			}
			r, told, err := runJob(t, job, c.fault)
			if err != nil {
				t.Fatalf("%v\n%s", err, strings.Join(told, "\n"))
			}
			if r.WeightsSHA256 != want {
				t.Errorf("weights %s, want %s\n%s", r.WeightsSHA256, want, strings.Join(told, "\n"))
			}
			for _, a := range r.Actors {
				if n := map[bool]int{true: 1}[string(a.ID) == c.who]; a.Restarts != n {
					t.Errorf("%s was restarted %d times, want %d\n%s", a.ID, a.Restarts, n, strings.Join(told, "\n"))
				}
			}
			if len(r.Recoveries) != 1 || r.Recoveries[0].CaughtUp <= 0 || r.Recoveries[0].Restored > r.Recoveries[0].Replayed {
				t.Errorf("recoveries %+v\n%s", r.Recoveries, strings.Join(told, "\n"))
			}
			if !slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, "decision: restart "+c.who) }) {
				t.Errorf("no decision was told\n%s", strings.Join(told, "\n"))
			}
		})
	}
}

// TestOneActorFailsInBF16: what is stored in fewer bits is restored with the same ones.
func TestOneActorFailsInBF16(t *testing.T) {
	job := func() *plan.Job { return testRunJob(t, "train.precision=bf16") }
	want, told, err := runJob(t, job(), "")
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(told, "\n"))
	}
	if plain, err := undisturbed(); err != nil || want.WeightsSHA256 == plain {
		t.Errorf("the weights are those of f32 (%v)", err)
	}
	for _, f := range []string{
		"kill stage.p0.d0 at send value activation micro-batch 1 of train step 2",
		"panic stage.p1.d1 at backward-weight micro-batch 2 of train step 5",
		"kill shard.p0.d1 at receive value gradient number 3 of train step 2",
		"panic mirror.p1.d0 at advance of train step 3",
	} {
		r, told, err := runJob(t, job(), f)
		if err != nil || r.WeightsSHA256 != want.WeightsSHA256 || r.Restarts != 1 {
			t.Errorf("%s: %v, %+v\n%s", f, err, r, strings.Join(told, "\n"))
		}
	}
}

// TestJobResumes: an actor that always fails makes the job go back to its newest checkpoint, and in the end stops it.
func TestJobResumes(t *testing.T) {
	want, err := undisturbed()
	must(t, err)
	set := func(t *testing.T) []string {
		return []string{"supervisor.restarts=1", "supervisor.backoff=0.001", "supervisor.resumes=2", "save.every=2", "save.dir=" + t.TempDir()}
	}
	t.Run("until it works", func(t *testing.T) {
		job := testRunJob(t, set(t)...)
		r, told, err := runJob(t, job, "panic stage.p0.d0 at forward micro-batch 0 of train step 4 times 3")
		if err != nil || r.WeightsSHA256 != want || r.Resumes != 1 {
			t.Fatalf("%+v, %v\n%s", r, err, strings.Join(told, "\n"))
		}
		if r.StepsRun != 6 || r.Tokens != 6*8*8 {
			t.Errorf("%d steps, %d tokens", r.StepsRun, r.Tokens)
		}
		a, err := AuditRun(job.Save.Dir)
		if err != nil || a.Steps != 6 || a.Samples != 48 || a.Runs != 2 || a.Checkpoint != 6 {
			t.Errorf("%+v, %v", a, err)
		}
	})
	t.Run("to a clear stop", func(t *testing.T) {
		job := testRunJob(t, set(t)...)
		_, told, err := runJob(t, job, "panic stage.p0.d0 at forward micro-batch 0 of train step 4 times 100")
		var f *Failure
		if !errors.As(err, &f) || f.Actor != "stage.p0.d0" || f.Round.Step != 4 {
			t.Fatalf("%v\n%s", err, strings.Join(told, "\n"))
		}
		if n := strings.Count(strings.Join(told, "\n"), "decision: resume the job"); n != 2 {
			t.Errorf("%d resumes\n%s", n, strings.Join(told, "\n"))
		}
		// Older checkpoints are tried, too.
		if !strings.Contains(strings.Join(told, "\n"), "from its newest checkpoint but 1: ") {
			t.Error(strings.Join(told, "\n"))
		}
		// A later run goes on from there.
		r, _, err := runJob(t, job, "", WithResume())
		if err != nil || r.WeightsSHA256 != want {
			t.Errorf("%v", err)
		}
	})
}

// TestSpikePolicies: a batch of noise after batches that were learned is a spike.
func TestSpikePolicies(t *testing.T) {
	noise := map[int64]bool{}
	for i := int64(10 * 8); i < 11*8; i++ {
		noise[i] = true
	}
	spike := []string{"train.steps=14", "supervisor.bad_batch.spike=8", "supervisor.bad_batch.window=4", "save.every=2"}
	data := WithData(words{vocab: 16, noise: noise})
	skipped := func(t *testing.T, dir string) []int64 {
		a, err := AuditRun(dir)
		must(t, err)
		var steps []int64
		for _, s := range a.Skipped {
			steps = append(steps, s.Step)
		}
		return steps
	}
	t.Run("stop", func(t *testing.T) {
		_, _, err := runJob(t, testRunJob(t, append(spike, "save.dir="+t.TempDir())...), "", data)
		var bad *BadBatch
		if !errors.As(err, &bad) || bad.Step != 10 {
			t.Errorf("%v", err)
		}
	})
	t.Run("skip", func(t *testing.T) {
		dir := t.TempDir()
		job := testRunJob(t, append(spike, "save.dir="+dir, "supervisor.bad_batch.policy=skip")...)
		r, told, err := runJob(t, job, "", data)
		if err != nil || r.SkippedSteps != 1 || r.Steps != 14 {
			t.Fatalf("%+v, %v\n%s", r, err, strings.Join(told, "\n"))
		}
		if got := skipped(t, dir); !slices.Equal(got, []int64{10}) {
			t.Errorf("skipped %v", got)
		}
		// The same on resume from before the spike, and with a failure at the decision.
		must(t, checkpoint.Forget(dir, 8))
		again, _, err := runJob(t, job, "panic trainer at decide of train step 10", data, WithResume())
		if err != nil || again.WeightsSHA256 != r.WeightsSHA256 {
			t.Errorf("resumed: %+v, %v", again, err)
		}
	})
	t.Run("rollback", func(t *testing.T) {
		dir := t.TempDir()
		job := testRunJob(t, append(spike, "save.dir="+dir, "supervisor.bad_batch.policy=rollback", "supervisor.bad_batch.back=3")...)
		r, told, err := runJob(t, job, "", data)
		if err != nil || r.Resumes != 1 || r.Steps != 14 {
			t.Fatalf("%+v, %v\n%s", r, err, strings.Join(told, "\n"))
		}
		if got := skipped(t, dir); !slices.Equal(got, []int64{7, 8, 9, 10}) {
			t.Errorf("skipped %v", got)
		}
	})
}

// TestSkippedSteps: steps that are undone and skipped again are counted as the audit counts them.
func TestSkippedSteps(t *testing.T) {
	noise := map[int64]bool{}
	for _, step := range []int64{10, 15} {
		for i := step * 8; i < (step+1)*8; i++ {
			noise[i] = true
		}
	}
	job := testRunJob(t, "train.steps=18", "save.every=50", "save.dir="+t.TempDir(), "supervisor.bad_batch.spike=8", "supervisor.bad_batch.window=4",
		"supervisor.bad_batch.policy=rollback", "supervisor.bad_batch.back=3")
	r, told, err := runJob(t, job, "", WithData(words{vocab: 16, noise: noise}))
	if err != nil || r.Resumes != 2 {
		t.Fatalf("%+v, %v\n%s", r, err, strings.Join(told, "\n"))
	}
	if a, err := AuditRun(job.Save.Dir); err != nil || len(a.Skipped) != 8 || r.SkippedSteps != 8 {
		t.Errorf("%d steps are skipped; the audit says %+v, %v", r.SkippedSteps, a, err)
	}
}

// TestFullDisk: a checkpoint that cannot be written does not stop the run, unless it is the last.
func TestFullDisk(t *testing.T) {
	t.Cleanup(func() { checkpoint.OnWrite(func() error { return nil }) })
	want, err := undisturbed()
	must(t, err)
	dir := filepath.Join(t.TempDir(), "run")
	job := testRunJob(t, "save.every=2", "save.dir="+dir)
	r, told, err := runJob(t, job, "fill-disk 0 at trainer finish of snapshot step 2 for 50ms\nslow trainer at feed of train step 3 factor 2\nhang trainer at feed of train step 3 for 100ms")
	if err != nil || r.WeightsSHA256 != want || r.Restarts != 0 {
		t.Fatalf("%+v, %v\n%s", r, err, strings.Join(told, "\n"))
	}
	if !slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, "step 2 has no checkpoint") }) {
		t.Error(strings.Join(told, "\n"))
	}
	entries, err := checkpoint.List(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	job.Save.Dir = filepath.Join(t.TempDir(), "run")
	r, told, err = runJob(t, job, "fill-disk 0 at trainer finish of snapshot step 6 for 200ms")
	if err != nil || r.WeightsSHA256 != want || filepath.Base(r.Checkpoint) != "step-00000006" || !strings.Contains(strings.Join(told, "\n"), "the last checkpoint cannot be written, and is tried again") {
		t.Fatalf("the last checkpoint is late: %+v, %v\n%s", r, err, strings.Join(told, "\n"))
	}
	job.Save.Dir, job.Supervisor.Deadline = filepath.Join(t.TempDir(), "run"), 2
	if _, _, err := runJob(t, job, "fill-disk 0 at trainer finish of snapshot step 6 for 10s"); err == nil || !strings.Contains(err.Error(), "last checkpoint was not written") {
		t.Errorf("the last checkpoint fails: %v", err)
	}
}

// TestFullDiskAtTheJournal: an entry that cannot be written is waited for, and nobody is blamed; in the end the run stops, and
// goes on later.
func TestFullDiskAtTheJournal(t *testing.T) {
	t.Cleanup(func() { checkpoint.OnWrite(func() error { return nil }) })
	want, err := undisturbed()
	must(t, err)
	job := testRunJob(t, "save.every=2", "save.dir="+t.TempDir())
	r, told, err := runJob(t, job, "fill-disk 0 at trainer decide of train step 2 for 300ms")
	if err != nil || r.WeightsSHA256 != want || r.Restarts+r.Resumes != 0 || strings.Count(strings.Join(told, "\n"), "the journal cannot be written, and is tried again for up to 30s: no space left") != 1 {
		t.Fatalf("%+v, %v\n%s", r, err, strings.Join(told, "\n"))
	}
	if a, err := AuditRun(job.Save.Dir); err != nil || a.Steps != 6 || a.Undone != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	job = testRunJob(t, "save.every=2", "supervisor.deadline=1.2", "supervisor.heartbeat=0.1", "save.dir="+t.TempDir())
	_, told, err = runJob(t, job, "fill-disk 0 at trainer decide of train step 3 for 10s")
	if err == nil || !strings.Contains(err.Error(), "journal ") || !strings.Contains(err.Error(), "no space left") || strings.Contains(strings.Join(told, "\n"), "decision") {
		t.Fatalf("%v\n%s", err, strings.Join(told, "\n"))
	}
	if a, err := AuditRun(job.Save.Dir); err != nil || a.Steps != 3 || a.Checkpoint != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	checkpoint.OnWrite(func() error { return nil })
	if r, _, err := runJob(t, job, "", WithResume()); err != nil || r.WeightsSHA256 != want {
		t.Errorf("resumed: %+v, %v", r, err)
	}
}

// TestTwoAtOnce: two actors fail in the same step.
func TestTwoAtOnce(t *testing.T) {
	want, err := undisturbed()
	must(t, err)
	for i, faults := range []string{
		"panic stage.p0.d0 at forward micro-batch 0 of train step 2\npanic stage.p1.d1 at forward micro-batch 2 of train step 2",
		"panic stage.p0.d0 at backward-weight micro-batch 0 of train step 2\npanic shard.p0.d0 at reduce of train step 2",
		"panic trainer at decide of train step 2\npanic mirror.p1.d0 at hold of train step 2",
		"panic shard.p0.d1 at reduce of train step 2\npanic mirror.p1.d0 at hold of train step 2",
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r, told, err := runJob(t, testRunJob(t), faults)
			if err != nil || r.WeightsSHA256 != want || r.Restarts != 2 {
				t.Fatalf("%+v, %v\n%s", r, err, strings.Join(told, "\n"))
			}
		})
	}
}

// TestStopOutlivesTheTrainer: a stop that was asked for before the trainer began a new life holds in that life too.
func TestStopOutlivesTheTrainer(t *testing.T) {
	for _, c := range []struct {
		name string
		stop func(cancel func()) []Option
	}{
		{"interrupt", func(cancel func()) []Option {
			return []Option{WithProgress(func(p Progress) {
				if p.Note != nil && strings.HasPrefix(*p.Note, "fault: ") {
					cancel()
				}
			})}
		}},
		{"stop-at", func(func()) []Option { return []Option{WithStopAt(3)} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := fault.Parse("panic trainer at decide of train step 2")
			must(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			job := testRunJob(t, "supervisor.backoff=0.2")
			r, err := Run(ctx, job, testOptions(t, job, append(c.stop(cancel), WithFaults(list))...)...)
			if err != nil || r.Restarts != 1 || r.Steps != 3 || !r.Stopped {
				t.Fatalf("%+v, %v", r, err)
			}
		})
	}
}
