package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/troupe-train/troupe/checkpoint"
	"github.com/troupe-train/troupe/plan"
)

// Audit is what the ledger of a run proves.
type Audit struct {
	Job string `json:"job"`
	// Steps are the committed ones, the first of them From. Every sample from First to Last is in exactly one of them.
	From    int64 `json:"from"`
	Steps   int64 `json:"steps"`
	First   int64 `json:"first_sample"`
	Last    int64 `json:"last_sample"`
	Samples int64 `json:"samples"`
	// Skipped are the steps that made no update.
	Skipped []SkipEntry `json:"skipped"`
	// Shifts are the steps at which the shares of the data ranks changed; those of the plan are empty.
	Shifts []ShiftEntry `json:"shifts"`
	// Epochs is how often the text was gone through; 0 where it has no epochs.
	Epochs float64 `json:"epochs"`
	// Runs is how often the run was begun, and Undone the steps that were committed and then undone by going back.
	Runs   int `json:"runs"`
	Undone int `json:"undone"`
	// Checkpoint is the newest complete one, by its step; -1 if there is none.
	Checkpoint int64 `json:"checkpoint"`
}

// ShiftEntry is a step that was run by other shares than the one before it.
type ShiftEntry struct {
	Step   int64       `json:"step"`
	Shares plan.Shares `json:"shares"`
}

// AuditRun reads the journal in dir and checks that every sample is in exactly one committed step, that a step
// was skipped only by a decision that was taken down, and that the checkpoints are of the same run: of its model, data and
// batch, not ahead of the ledger, and made by the steps that it has.
// The error names the first violation.
func AuditRun(dir string) (*Audit, error) {
	path := filepath.Join(dir, checkpoint.JournalName)
	data, err := os.ReadFile(path)
	if err != nil {
		switch info, e := os.Stat(dir); {
		case e != nil:
		case !info.IsDir():
			err = fmt.Errorf("%w: a run is the folder in save.dir", fs.ErrInvalid)
		case errors.Is(err, fs.ErrNotExist):
			err = missing(dir)
		}
		return nil, fmt.Errorf("audit: %w", err)
	}
	l, whole, err := ParseJournal(data)
	if err == nil {
		err = l.check()
	}
	if err != nil {
		return nil, fmt.Errorf("audit: %s: %w", path, err)
	}
	if whole == 0 {
		return nil, fmt.Errorf("audit: %s: it is empty", path)
	}
	a := l.audit()
	entries, err := checkpoint.List(dir)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	for _, e := range entries {
		if e.Err != nil {
			continue
		}
		a.Checkpoint = e.Step
		if e.Step > l.Committed() {
			return nil, fmt.Errorf("audit: %s is of step %d, but the ledger has %d committed steps", e.Path, e.Step, l.Committed())
		}
		if f := e.Meta.Fingerprint(); f != l.Run.Fingerprint {
			return nil, fmt.Errorf("audit: %s is of another run than %s: its model, optimizer, data, seed and batch have the fingerprint %.12s, and those of the journal %.12s", e.Path, path, f, l.Run.Fingerprint)
		}
		if err := l.made(e.Step, e.Meta.Commit); err != nil {
			return nil, fmt.Errorf("audit: %s is of another run than %s: %w", e.Path, path, err)
		}
	}
	return a, nil
}

// missing is the error of a folder without a journal.
func missing(dir string) error {
	if entries, err := checkpoint.List(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s has checkpoints, but no %s that says what made them", dir, checkpoint.JournalName)
	}
	return fmt.Errorf("%s has no %s: it is not the save.dir of a run, or the run has committed nothing", dir, checkpoint.JournalName)
}

// check proves that samples follow each other without gap or overlap.
func (l *Ledger) check() error {
	batch := int64(l.Run.Batch)
	next := l.Began * batch
	for i, s := range l.Steps {
		switch {
		case s.Step != l.Began+int64(i):
			return fmt.Errorf("train step %d stands where train step %d is due", s.Step, l.Began+int64(i))
		case s.First < next:
			return fmt.Errorf("sample %d is in train step %d and in a step before it", s.First, s.Step)
		case s.First > next:
			return fmt.Errorf("sample %d is in no committed step: train step %d begins with sample %d", next, s.Step, s.First)
		case s.Last-s.First+1 != batch:
			return fmt.Errorf("train step %d has samples %d to %d, and a batch is %d", s.Step, s.First, s.Last, batch)
		case l.Run.Windows > 0 && s.Epoch != s.First/l.Run.Windows:
			return fmt.Errorf("train step %d is said to be of epoch %d, but sample %d is of epoch %d", s.Step, s.Epoch, s.First, s.First/l.Run.Windows)
		case (s.Skipped != "") != (s.Verdict < 0):
			return fmt.Errorf("train step %d has verdict %v and the reason %q to be skipped", s.Step, s.Verdict, s.Skipped)
		case s.Skipped != "" && l.Skips[s.Step] == "":
			return fmt.Errorf("train step %d was skipped, and no decision to skip it stands before it", s.Step)
		case s.Skipped == "" && l.Skips[s.Step] != "":
			return fmt.Errorf("train step %d made an update, though it was decided to skip it: %s", s.Step, l.Skips[s.Step])
		}
		if err := checkShares(s, l.Run.Batch); err != nil {
			return err
		}
		next = s.Last + 1
	}
	return nil
}

// checkShares proves that the shares of a step, if it has any, deal micro-batches of at least one sample to every data rank.
func checkShares(s StepEntry, batch int) error {
	if s.Shares == "" {
		return nil
	}
	counts, err := s.Shares.Counts()
	if err != nil {
		return fmt.Errorf("train step %d: %w", s.Step, err)
	}
	sum := 0
	for _, n := range counts {
		sum += n
	}
	if slices.Min(counts) < 1 || sum > batch {
		return fmt.Errorf("train step %d was run by the shares %s; at least 1 for each data rank, and %d in all at most, are legal", s.Step, s.Shares, batch)
	}
	return nil
}

func (l *Ledger) audit() *Audit {
	a := &Audit{Job: l.Run.Job, From: l.Began, Steps: int64(len(l.Steps)), Skipped: []SkipEntry{}, Shifts: []ShiftEntry{}, Runs: l.Runs, Undone: l.Undone, Checkpoint: -1}
	shares := plan.Shares("")
	for _, s := range l.Steps {
		if s.Shares != shares {
			shares = s.Shares
			a.Shifts = append(a.Shifts, ShiftEntry{s.Step, shares})
		}
		if s.Skipped != "" {
			a.Skipped = append(a.Skipped, SkipEntry{s.Step, s.Skipped})
		}
	}
	if n := len(l.Steps); n > 0 {
		a.First, a.Last = l.Steps[0].First, l.Steps[n-1].Last
		a.Samples = a.Last - a.First + 1
		if l.Run.Windows > 0 {
			a.Epochs = float64(a.Samples) / float64(l.Run.Windows)
		}
	}
	return a
}
