package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-train/troupe/checkpoint"
	"github.com/troupe-train/troupe/plan"
)

var testRun = RunEntry{Job: "toy", Fingerprint: "f", Batch: 4, Windows: 10}

// testStep is a committed step of testRun.
func testStep(step int64) StepEntry {
	return StepEntry{Step: step, Epoch: step * 4 / 10, First: step * 4, Last: step*4 + 3, Loss: Number(3 - float64(step)/7), Norm: 0.1, Verdict: 1}
}

func openTestJournal(t testing.TB, dir string, steps int64) *Journal {
	t.Helper()
	j, err := OpenJournal(dir, testRun, FromEntry{Steps: steps, Reason: "test"}, plan.BadBatch{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestJournal: what is written is read again, by the next run too, which goes back to its checkpoint; decisions to skip outlast it.
func TestJournal(t *testing.T) {
	dir := t.TempDir()
	j := openTestJournal(t, dir, 0)
	for s := range int64(5) {
		must(t, j.Commit(testStep(s)))
	}
	must(t, j.Skip(6, "a spike"))
	must(t, j.Close())
	j = openTestJournal(t, dir, 3)
	if n := j.Ledger().Committed(); n != 3 {
		t.Fatalf("%d steps after going back to 3", n)
	}
	for s := int64(3); s < 6; s++ {
		must(t, j.Commit(testStep(s)))
	}
	skipped := testStep(6)
	skipped.Skipped, skipped.Verdict, skipped.Loss, skipped.Norm = "a spike", -1, Number(math.NaN()), Number(math.Inf(1))
	skipped.Lives = map[plan.ActorID]int{"stage.p0.d0": 2}
	must(t, j.Commit(skipped))
	must(t, j.Commit(skipped)) // a trainer that was restarted says it again
	must(t, j.Commit(testStep(5)))
	changed := testStep(5)
	changed.Loss++
	if err := j.Commit(changed); err == nil || !strings.Contains(err.Error(), "committed again") {
		t.Errorf("a step that is committed with another loss: %v", err)
	}
	must(t, j.Close())
	l, err := ReadJournal(dir)
	must(t, err)
	if l.Committed() != 7 || l.Undone != 2 || l.Runs != 2 || l.Skips[6] != "a spike" {
		t.Errorf("%+v", l)
	}
	if got := l.Steps[6]; !math.IsNaN(float64(got.Loss)) || !math.IsInf(float64(got.Norm), 1) || got.Lives["stage.p0.d0"] != 2 {
		t.Errorf("%+v", got)
	}
	a, err := AuditRun(dir)
	must(t, err)
	if a.Steps != 7 || a.Samples != 28 || a.Last != 27 || len(a.Skipped) != 1 || a.Epochs != 2.8 {
		t.Errorf("%+v", a)
	}
}

// TestJournalTriesAgain: a line of which it is not known whether it can be read again is cut off, and written anew while there is
// patience; without that the journal takes no more, and what is in it is whole.
func TestJournalTriesAgain(t *testing.T) {
	t.Cleanup(func() { checkpoint.OnWrite(func() error { return nil }) })
	for fails := range 5 {
		dir := t.TempDir()
		j := openTestJournal(t, dir, 0)
		must(t, j.Commit(testStep(0)))
		n, notes := 0, 0
		checkpoint.OnWrite(func() error { // a write, then a sync, of which the last one of each try fails
			if n++; n%2 == 0 && n <= 2*fails {
				return errors.New("full")
			}
			return nil
		})
		over := false
		j.patience, j.over, j.note = 20*retryPause, func() bool { return over }, func(string) { notes++ }
		must(t, j.Commit(testStep(1)))
		if n != 2*fails+2 || notes != min(fails, 1) {
			t.Errorf("%d failures: %d calls, %d notes", fails, n, notes)
		}
		n, over = 0, fails%2 == 0
		if fails = 1; !over {
			j.patience = 0
		}
		if err := j.Commit(testStep(2)); err == nil || !strings.Contains(err.Error(), "full") || n > 2 {
			t.Errorf("without patience: %v after %d calls", err, n)
		}
		if err := j.Commit(testStep(2)); err == nil {
			t.Error("it takes more after an error")
		}
		must(t, j.Back(FromEntry{Steps: 1}))
		must(t, j.Commit(testStep(1)))
		must(t, j.Close())
		data, err := os.ReadFile(filepath.Join(dir, checkpoint.JournalName))
		must(t, err)
		if l, whole, err := ParseJournal(data); err != nil || whole != len(data) || l.Committed() != 2 {
			t.Errorf("%+v, %d of %d bytes, %v", l, whole, len(data), err)
		}
		checkpoint.OnWrite(func() error { return nil })
	}
}

// TestJournalRefuses: what is not a journal, or is one of another run or of a future that this run does not have.
func TestJournalRefuses(t *testing.T) {
	open := func(dir string, run RunEntry, steps int64) error {
		j, err := OpenJournal(dir, run, FromEntry{Steps: steps}, plan.BadBatch{})
		if err == nil {
			j.Close()
		}
		return err
	}
	dir := t.TempDir()
	j := openTestJournal(t, dir, 0)
	must(t, j.Commit(testStep(0)))
	if err := j.Commit(testStep(2)); err == nil || !strings.Contains(err.Error(), "step 1 is next") {
		t.Errorf("a step is left out: %v", err)
	}
	must(t, j.Close())
	other := testRun
	other.Fingerprint = "g"
	if err := open(dir, other, 0); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("another fingerprint: %v", err)
	}
	if err := open(dir, testRun, 2); err == nil || !strings.Contains(err.Error(), "goes on from the weights of 2 steps") {
		t.Errorf("a checkpoint ahead of the ledger: %v", err)
	}
	for _, text := range []string{"hello\n", "hello", "a\nb\nc\n", "\n", "0badc0de {\"run\":{}}\n0badc0de\n"} {
		dir := t.TempDir()
		path := filepath.Join(dir, checkpoint.JournalName)
		must(t, os.WriteFile(path, []byte(text), 0o644))
		if err := open(dir, testRun, 0); !errors.Is(err, ErrNotJournal) {
			t.Errorf("%q: %v", text, err)
		}
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("%q was changed into %q", text, got)
		}
	}
}

// TestForeignJournal: the journal of another run passes no audit, and no run goes on with it, though it is as long and in order; nor
// with one that has lost its end. The run says how to go on, and that works.
func TestForeignJournal(t *testing.T) {
	run := func(set ...string) (*plan.Job, string) {
		dir := t.TempDir()
		job := testRunJob(t, append(set, "save.every=2", "save.dir="+dir)...)
		_, told, err := runJob(t, job, "", WithStopAt(4))
		if err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(told, "\n"))
		}
		_, err = AuditRun(dir)
		must(t, err)
		return job, filepath.Join(dir, checkpoint.JournalName)
	}
	_, seed := run("train.seed=7")
	_, rate := run("train.optimizer.lr=2e-2")
	job, mine := run()
	good, err := os.ReadFile(mine)
	must(t, err)
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		must(t, err)
		return b
	}
	for _, c := range []struct {
		name          string
		text          []byte
		audit, resume string
	}{
		{"another seed", read(seed), "fingerprint", "it is of another run"},
		{"another learning rate", read(rate), "did not make the weights of 2 steps", "did not make the weights of 4 steps"},
		{"without its end", good[:bytes.LastIndexByte(good[:len(good)-1], '\n')+1], "the ledger has 3 committed steps", "it goes on from the weights of 4 steps, but the journal has those of 0 to 3"},
		{"no journal", []byte("hello\nyou\n"), "not a journal", "not a journal"},
	} {
		must(t, os.WriteFile(mine, c.text, 0o644))
		if _, err := AuditRun(job.Save.Dir); err == nil || !strings.Contains(err.Error(), c.audit) {
			t.Errorf("%s: the audit says %v", c.name, err)
		}
		if _, _, err := runJob(t, job, "", WithResume()); err == nil || !strings.Contains(err.Error(), c.resume) || !strings.Contains(err.Error(), "move this file away, and --resume begins a new one at train step 4") {
			t.Errorf("%s: the run that goes on says %v", c.name, err)
		}
		if !bytes.Equal(read(mine), c.text) {
			t.Errorf("%s: a run that was refused has changed it", c.name)
		}
	}
	must(t, os.Remove(mine))
	want, err := undisturbed()
	must(t, err)
	r, told, err := runJob(t, job, "", WithResume())
	if err != nil || r.WeightsSHA256 != want {
		t.Errorf("without the journal: %+v, %v", r, err)
	}
	if !strings.Contains(strings.Join(told, "\n"), "is missing or empty; a new one begins at train step 4") {
		t.Errorf("nothing is said of it:\n%s", strings.Join(told, "\n"))
	}
	if a, err := AuditRun(job.Save.Dir); err != nil || a.From != 4 || a.Steps != 2 {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestJournalIsNeeded: where what a policy decides rests on the journal, no run goes on without it, nor with too little of it; what is
// said to be the way out is one, and a journal with enough in it is enough.
func TestJournalIsNeeded(t *testing.T) {
	noise := map[int64]bool{}
	for i := int64(10 * 8); i < 11*8; i++ {
		noise[i] = true
	}
	data := WithData(words{vocab: 16, noise: noise})
	for _, c := range []struct{ policy, out string }{
		{"skip", "supervisor.bad_batch.spike=0"},
		{"rollback", "supervisor.bad_batch.policy=stop"},
	} {
		dir := t.TempDir()
		set := []string{"train.steps=14", "save.every=2", "save.dir=" + dir, "supervisor.bad_batch.spike=8", "supervisor.bad_batch.window=4", "supervisor.bad_batch.policy=" + c.policy}
		job := testRunJob(t, set...)
		_, told, err := runJob(t, job, "", data, WithStopAt(6))
		if err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(told, "\n"))
		}
		path := filepath.Join(dir, checkpoint.JournalName)
		good, err := os.ReadFile(path)
		must(t, err)
		for name, text := range map[string][]byte{"missing": nil, "empty": {}, "its first entry": good[:bytes.IndexByte(good, '\n')+1], "without its end": good[:bytes.LastIndexByte(good[:len(good)-1], '\n')+1]} {
			must(t, os.Remove(path))
			if text != nil {
				must(t, os.WriteFile(path, text, 0o644))
			}
			_, _, err := runJob(t, job, "", data, WithResume())
			if err == nil || !strings.Contains(err.Error(), "put back the file") || !strings.Contains(err.Error(), "--set "+c.out) || strings.Contains(err.Error(), "do not depend") {
				t.Errorf("%s, %s: %v", c.policy, name, err)
			}
			if got, err := os.ReadFile(path); (err == nil) != (text != nil) || !bytes.Equal(got, text) {
				t.Errorf("%s, %s: a run that was refused has changed it", c.policy, name)
			}
			must(t, os.WriteFile(path, good, 0o644))
		}
		must(t, os.Remove(path))
		out := testRunJob(t, append(set, c.out)...)
		if _, _, err := runJob(t, out, "", data, WithResume(), WithStopAt(8)); err != nil {
			t.Errorf("%s: %v", c.policy, err)
		}
		if _, _, err := runJob(t, job, "", data, WithResume()); err == nil || !strings.Contains(err.Error(), "has 2 losses of steps before train step 8") {
			t.Errorf("%s, with two losses: %v", c.policy, err)
		}
		if _, _, err := runJob(t, out, "", data, WithResume(), WithStopAt(10)); err != nil {
			t.Errorf("%s: %v", c.policy, err)
		}
		if _, _, err := runJob(t, job, "", data, WithResume()); err != nil {
			t.Errorf("%s, with four losses: %v", c.policy, err)
		}
	}
}

// TestAuditOfNothing: a folder without a journal is told from one with checkpoints that lack theirs.
func TestAuditOfNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := AuditRun(dir); err == nil || !strings.Contains(err.Error(), "has committed nothing") {
		t.Errorf("an empty folder: %v", err)
	}
	must(t, os.Mkdir(filepath.Join(dir, "step-00000002"), 0o755))
	if _, err := AuditRun(dir); err == nil || !strings.Contains(err.Error(), "has checkpoints, but no journal.log") {
		t.Errorf("a checkpoint: %v", err)
	}
	if _, err := AuditRun(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// TestTornTail: whatever byte a journal is cut at, the whole entries before it are there, and the run goes on behind them.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	j := openTestJournal(t, dir, 0)
	for s := range int64(3) {
		must(t, j.Commit(testStep(s)))
	}
	must(t, j.Close())
	path := filepath.Join(dir, checkpoint.JournalName)
	data, err := os.ReadFile(path)
	must(t, err)
	for cut := range len(data) + 1 {
		must(t, os.WriteFile(path, data[:cut], 0o644))
		want := max(0, bytes.Count(data[:cut], []byte("\n"))-2)
		j, err := OpenJournal(dir, testRun, FromEntry{Steps: int64(want)}, plan.BadBatch{})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		must(t, j.Commit(testStep(int64(want))))
		must(t, j.Close())
		l, err := ReadJournal(dir)
		if err != nil || l.Committed() != int64(want)+1 {
			t.Fatalf("cut at %d: %v, %+v", cut, err, l)
		}
	}
}

// TestDamagedJournal: a bit that flips before the last entry is found.
func TestDamagedJournal(t *testing.T) {
	dir := t.TempDir()
	j := openTestJournal(t, dir, 0)
	for s := range int64(3) {
		must(t, j.Commit(testStep(s)))
	}
	must(t, j.Close())
	data, err := os.ReadFile(filepath.Join(dir, checkpoint.JournalName))
	must(t, err)
	last := bytes.LastIndexByte(data[:len(data)-1], '\n')
	for i := range last {
		bad := bytes.Clone(data)
		bad[i] ^= 1
		if _, _, err := ParseJournal(bad); err == nil {
			t.Fatalf("bit 0 of byte %d flips unseen: %q", i, bad[max(0, i-20):i+20])
		}
	}
}

// TestAudit: every way in which a ledger can be wrong is named.
func TestAudit(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Ledger)
		want   string
	}{
		{"in order", func(*Ledger) {}, ""},
		{"twice", func(l *Ledger) { l.Steps[2].First = 7 }, "sample 7 is in train step 2 and in a step before it"},
		{"never", func(l *Ledger) { l.Steps[2].First = 9 }, "sample 8 is in no committed step"},
		{"short", func(l *Ledger) { l.Steps[2].Last-- }, "a batch is 4"},
		{"gap", func(l *Ledger) { l.Steps[2].Step = 3 }, "train step 3 stands where train step 2 is due"},
		{"epoch", func(l *Ledger) { l.Steps[2].Epoch = 1 }, "epoch"},
		{"skipped without decision", func(l *Ledger) { l.Steps[1].Skipped, l.Steps[1].Verdict = "?", -1 }, "no decision"},
		{"decision without skip", func(l *Ledger) { l.Skips[1] = "a spike" }, "made an update"},
		{"other shares", func(l *Ledger) { l.Steps[1].Shares, l.Steps[2].Shares = "3,1", "1,1,1" }, ""},
		{"shares of more than a batch", func(l *Ledger) { l.Steps[1].Shares = "3,2" }, "step 1 was run by the shares 3,2"},
		{"a rank without a share", func(l *Ledger) { l.Steps[1].Shares = "4,0" }, "step 1 was run by the shares 4,0"},
		{"no shares", func(l *Ledger) { l.Steps[1].Shares = "x" }, "step 1"},
		{"verdict without skip", func(l *Ledger) { l.Steps[1].Verdict = -1 }, "verdict"},
	} {
		l := &Ledger{Run: testRun, Skips: map[int64]string{}, Steps: []StepEntry{testStep(0), testStep(1), testStep(2), testStep(3)}}
		c.change(l)
		err := l.check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestLedgerOfAnyHistory: runs that commit, skip, are killed and go back leave a ledger that passes the audit.
func TestLedgerOfAnyHistory(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(dir, fmt.Sprint(n))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		at := int64(0)
		for range rapid.IntRange(1, 4).Draw(t, "runs") {
			j, err := OpenJournal(dir, testRun, FromEntry{Steps: at}, plan.BadBatch{})
			if err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(0, 6).Draw(t, "steps") {
				s := testStep(at)
				reason := j.Ledger().Skips[at]
				if reason == "" && rapid.Bool().Draw(t, "skip") {
					reason = "drawn"
					if err := j.Skip(at, reason); err != nil {
						t.Fatal(err)
					}
				}
				if reason != "" {
					s.Skipped, s.Verdict = reason, -1
				}
				if err := j.Commit(s); err != nil {
					t.Fatal(err)
				}
				at++
			}
			j.Close()
			at = rapid.Int64Range(0, at).Draw(t, "back to")
		}
		if _, err := AuditRun(dir); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzJournal: no bytes make the reader panic, and what it calls whole is read the same without the rest.
func FuzzJournal(f *testing.F) {
	dir := f.TempDir()
	j := openTestJournal(f, dir, 0)
	must(f, j.Skip(1, "x"))
	must(f, j.Commit(testStep(0)))
	must(f, j.Close())
	data, err := os.ReadFile(filepath.Join(dir, checkpoint.JournalName))
	must(f, err)
	f.Add(data)
	f.Add(data[:len(data)-5])
	f.Add([]byte("\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		l, whole, err := ParseJournal(data)
		if err != nil {
			return
		}
		again, n, err := ParseJournal(data[:whole])
		if err != nil || n != whole || again.Committed() != l.Committed() {
			t.Fatalf("%d whole bytes; again %d, %v", whole, n, err)
		}
	})
}
