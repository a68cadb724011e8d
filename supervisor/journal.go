package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/troupe-train/troupe/checkpoint"
	"github.com/troupe-train/troupe/plan"
)

// Number is a float64 that JSON can carry also when it is infinite or not a number.
type Number float64

func (n Number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return json.Marshal(strconv.FormatFloat(f, 'g', -1, 64))
	}
	return json.Marshal(f)
}

func (n *Number) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) != nil {
		return json.Unmarshal(b, (*float64)(n))
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !math.IsNaN(f) && !math.IsInf(f, 0) {
		return fmt.Errorf("%q is not a number", text)
	}
	*n = Number(f)
	return nil
}

// is reports equality, in which a NaN is equal to itself.
func (n Number) is(o Number) bool { return n == o || n != n && o != o }

// Entry is a record of the journal: exactly one of its pointers is set.
type Entry struct {
	Run  *RunEntry  `json:"run,omitempty"`
	From *FromEntry `json:"from,omitempty"`
	Skip *SkipEntry `json:"skip,omitempty"`
	Step *StepEntry `json:"step,omitempty"`
}

// RunEntry is the first entry: whose journal it is.
type RunEntry struct {
	Version int    `json:"version"`
	Job     string `json:"job"`
	// Fingerprint is that of the checkpoints: model, optimizer, data, seed and batch.
	Fingerprint string `json:"fingerprint"`
	Batch       int    `json:"batch"`
	// Windows is the number of samples of an epoch; 0 where the data has no epochs.
	Windows int64 `json:"windows,omitempty"`
}

// FromEntry says that the run goes on from the weights of that many steps: steps from there on that stand
// before it in the journal are undone. Skip are decisions that were taken with it.
type FromEntry struct {
	Steps  int64  `json:"steps"`
	Reason string `json:"reason,omitempty"`
	// Commit is the Mark of the step that made these weights, as their checkpoint has it; empty where that is not known.
	Commit string      `json:"commit,omitempty"`
	Skip   []SkipEntry `json:"skip,omitempty"`
}

// SkipEntry is the decision that a step, when it comes, commits without an update.
type SkipEntry struct {
	Step   int64  `json:"step"`
	Reason string `json:"reason"`
}

// StepEntry is a committed step: the one that makes weights Step+1 of weights Step, with samples First to Last,
// counted over the whole run.
type StepEntry struct {
	Step  int64 `json:"step"`
	Epoch int64 `json:"epoch"`
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// Skipped says why the step made no update.
	Skipped string `json:"skipped,omitempty"`
	Loss    Number `json:"loss"`
	Norm    Number `json:"norm"`
	// Verdict is the factor that the gradient was multiplied by; negative for a step that was skipped.
	Verdict Number `json:"verdict"`
	// Shares are the micro-batches of the data ranks, where they were not those of the plan.
	Shares plan.Shares `json:"shares,omitempty"`
	// Lives are the incarnations of the actors that had been restarted.
	Lives map[plan.ActorID]int `json:"lives,omitempty"`
}

// Mark is a hash of what came of the step. Checkpoints carry that of the step that made their weights, so that they and the
// journal can be told to be of one run.
func (s StepEntry) Mark() string {
	b, err := json.Marshal(StepEntry{Step: s.Step, First: s.First, Last: s.Last, Loss: s.Loss, Norm: s.Norm, Verdict: s.Verdict})
	if err != nil {
		panic(err) // numbers
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Ledger is what a journal says: the steps of the weights that the run has now.
type Ledger struct {
	Run RunEntry
	// Began is the step of the weights that the journal begins with.
	Began int64
	// Steps are the committed steps, in order, from Began on.
	Steps []StepEntry
	// Skips are the decisions to skip, by step.
	Skips map[int64]string
	// Undone counts committed steps that were undone by going back; Runs, how often the run began.
	Undone, Runs int
}

// Committed is the number of committed steps.
func (l *Ledger) Committed() int64 { return l.Began + int64(len(l.Steps)) }

// apply takes in an entry, which must fit those before it.
func (l *Ledger) apply(e Entry) error {
	set := 0
	for _, is := range []bool{e.Run != nil, e.From != nil, e.Skip != nil, e.Step != nil} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("it says %d things and not one", set)
	case (l.Run.Version == 0) != (e.Run != nil):
		return errors.New("the first entry, and no other, says whose journal it is")
	case e.Run != nil:
		if e.Run.Version != journalVersion || e.Run.Batch < 1 || e.Run.Windows < 0 {
			return fmt.Errorf("version %d, batch %d, %d windows; version %d and a batch of 1 or more are legal", e.Run.Version, e.Run.Batch, e.Run.Windows, journalVersion)
		}
		l.Run = *e.Run
		return nil
	case e.From != nil:
		return l.from(e.From)
	case l.Runs == 0:
		return errors.New("no entry says from which step the run goes on")
	case e.Skip != nil:
		return l.skip(*e.Skip)
	}
	s := e.Step
	if s.Step != l.Committed() {
		return fmt.Errorf("it commits train step %d, but train step %d is next", s.Step, l.Committed())
	}
	l.Steps = append(l.Steps, *s)
	return nil
}

func (l *Ledger) from(e *FromEntry) error {
	if l.Runs == 0 {
		l.Began, l.Skips = e.Steps, map[int64]string{}
	}
	l.Runs++
	keep := e.Steps - l.Began
	if e.Steps < 0 || keep < 0 || keep > int64(len(l.Steps)) {
		return fmt.Errorf("it goes on from the weights of %d steps, but the journal has those of %d to %d", e.Steps, l.Began, l.Committed())
	}
	if err := l.made(e.Steps, e.Commit); err != nil {
		return err
	}
	l.Undone += len(l.Steps) - int(keep)
	l.Steps = l.Steps[:keep]
	for _, s := range e.Skip {
		if err := l.skip(s); err != nil {
			return err
		}
	}
	return nil
}

// made says whether the ledger has the step that made the weights of so many steps, with the mark that they have.
func (l *Ledger) made(steps int64, mark string) error {
	n := steps - 1 - l.Began
	if mark == "" || n < 0 || n >= int64(len(l.Steps)) || l.Steps[n].Mark() == mark {
		return nil
	}
	return fmt.Errorf("its train step %d, with loss %v, did not make the weights of %d steps that the checkpoint has", steps-1, l.Steps[n].Loss, steps)
}

func (l *Ledger) skip(s SkipEntry) error {
	if s.Step < l.Committed() {
		return fmt.Errorf("it decides to skip train step %d, but %d steps are committed", s.Step, l.Committed())
	}
	l.Skips[s.Step] = s.Reason
	return nil
}

// Journal is the ledger of a run, on disk. An entry that was written survives a power cut. After an error it takes no more,
// until the run goes back.
type Journal struct {
	mu     sync.Mutex
	path   string
	file   *os.File
	size   int64 // of the entries that are written
	ledger *Ledger
	err    error

	// patience is how long an entry that cannot be written is tried again, unless the attempt is over; note hears of it.
	patience time.Duration
	over     func() bool
	note     func(string)
}

// OpenJournal opens the journal in dir, or begins one, for a run that goes on from given weights. It refuses what is
// damaged, the journal of another run, and one that has not come to these weights; the error says how to go on without it.
// It refuses too to do without what a policy for bad batches decides by. What is refused is left as it is.
func OpenJournal(dir string, run RunEntry, from FromEntry, policy plan.BadBatch) (_ *Journal, err error) {
	run.Version = journalVersion
	j := &Journal{path: filepath.Join(dir, checkpoint.JournalName)}
	defer func() {
		if err != nil {
			err = fmt.Errorf("journal %s: %w", j.path, err)
		}
	}()
	data, err := os.ReadFile(j.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	refuse := func(err error) error {
		if rests(policy) {
			return fmt.Errorf("%w; %s: put back the file that was there, or move this one away and go on with --resume --set %s", err, why(policy), without(policy))
		}
		return fmt.Errorf("%w; the checkpoints do not depend on it: move this file away, and --resume begins a new one at train step %d", err, from.Steps)
	}
	l, whole, err := ParseJournal(data)
	if err != nil {
		return nil, refuse(err)
	}
	if have := l.Run; whole > 0 && (have.Fingerprint != run.Fingerprint || have.Batch != run.Batch || have.Windows != run.Windows) {
		return nil, refuse(fmt.Errorf("it is of another run: batch %d, %d windows, fingerprint %.12s; this one has batch %d, %d windows, fingerprint %.12s",
			have.Batch, have.Windows, have.Fingerprint, run.Batch, run.Windows, run.Fingerprint))
	}
	if whole > 0 {
		trial := *l
		if err := trial.apply(Entry{From: &from}); err != nil {
			return nil, refuse(err)
		}
	}
	if lacks := l.lacks(from.Steps, policy); lacks != "" {
		return nil, fmt.Errorf("%s; %s: put back the file that was there, or go on with --set %s", lacks, why(policy), without(policy))
	}
	j.ledger = l
	if j.file, err = os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.file.Close())
		}
	}()
	j.size = int64(whole)
	if err := j.cut(); err != nil {
		return nil, err
	}
	if whole == 0 {
		if err := j.write(Entry{Run: &run}); err != nil {
			return nil, err
		}
		if err := syncDir(dir); err != nil {
			return nil, err
		}
	}
	return j, j.write(Entry{From: &from})
}

// Ledger is what has been written so far. It changes with every entry.
func (j *Journal) Ledger() *Ledger { return j.ledger }

// Skip takes down the decision that a step commits without an update.
func (j *Journal) Skip(step int64, reason string) error {
	return j.append(Entry{Skip: &SkipEntry{step, reason}})
}

// Back takes down that the run goes on from given weights: what it committed after them is undone.
func (j *Journal) Back(from FromEntry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		if err := j.cut(); err != nil {
			return j.err
		}
		j.err = nil
	}
	return j.take(Entry{From: &from})
}

// Commit takes down a committed step. The same step may come again with the same numbers, from a trainer that was
// restarted; one that differs is refused.
func (j *Journal) Commit(s StepEntry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := s.Step - j.ledger.Began; n >= 0 && n < int64(len(j.ledger.Steps)) {
		have := j.ledger.Steps[n]
		if !have.Loss.is(s.Loss) || !have.Norm.is(s.Norm) || !have.Verdict.is(s.Verdict) || have.First != s.First || have.Last != s.Last {
			return fmt.Errorf("journal %s: train step %d is committed with loss %v and norm %v, and is to be committed again with loss %v and norm %v",
				j.path, s.Step, have.Loss, have.Norm, s.Loss, s.Norm)
		}
		return nil
	}
	return j.take(Entry{Step: &s})
}

func (j *Journal) append(e Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.take(e)
}

// take writes an entry, unless one before it failed. j.mu is held.
func (j *Journal) take(e Entry) error {
	if j.err == nil {
		if err := j.write(e); err != nil {
			j.err = fmt.Errorf("journal %s: %w", j.path, err)
		}
	}
	return j.err
}

// write makes an entry durable, and only then counts it.
func (j *Journal) write(e Entry) error {
	line, err := frame(e)
	if err != nil {
		return err
	}
	before := *j.ledger
	if err := before.apply(e); err != nil {
		return err
	}
	err = retry(j.patience, j.over, func() error {
		err := checkpoint.Append(j.file, line)
		if err == nil {
			return nil
		}
		if e := j.cut(); e != nil {
			err = fmt.Errorf("%w; and what was written of it stays: %w", err, e)
		}
		return err
	}, func(err error) {
		j.note(fmt.Sprintf("the journal cannot be written, and is tried again for up to %s: %v", j.patience, err))
	})
	if err != nil {
		return err
	}
	j.size += int64(len(line))
	*j.ledger = before
	return nil
}

// cut removes what is behind the entries that are written: a line that was written in part.
func (j *Journal) cut() error {
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	_, err := j.file.Seek(j.size, io.SeekStart)
	return err
}

// Close ends writing.
func (j *Journal) Close() error { return j.file.Close() }

// syncDir makes the name of a new file durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil // not on every system can a folder be opened
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
