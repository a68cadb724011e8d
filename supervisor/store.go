package supervisor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"sort"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/troupe-train/troupe/checkpoint"
	"github.com/troupe-train/troupe/data"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
)

// store is where the state of a run comes from and goes to: checkpoints in save.dir, or nowhere
// but the hash of the weights.
type store struct {
	plan   *plan.Plan // set once there is one
	dir    string
	keep   int
	meta   checkpoint.Meta
	opened *checkpoint.Checkpoint // what the run resumes from; nil for a fresh one
	clears bool                   // the run overwrites the checkpoints that are there
	stale  bool                   // the run has gone back: checkpoints of more steps are of a past that is undone
	lock   *checkpoint.Lock       // keeps other runs out of dir
	saved  func(CheckpointDone)

	note func(string)
	// settle makes sure, after a step, that what is written to dir can be found there. It may change dir.
	settle func(step int64) error
	// patience is how long the checkpoint of a step is tried again, unless the attempt is over.
	patience func(step int64) time.Duration
	over     func() bool
	// unsaved is why the checkpoint that was last due is not there.
	unsaved error

	made   string // the Mark of the step that was committed last
	owed   int    // shards that have not been restored yet
	hash   string // of the newest weights
	newest string // path of the newest checkpoint that this run wrote
}

// kinds are what is stored of a parameter, in the order of a shard's State.
var kinds = []checkpoint.Kind{checkpoint.Weight, checkpoint.FirstMoment, checkpoint.SecondMoment}

// openStore prepares save.dir and, when the run resumes, opens the newest complete checkpoint.
// text is a hash of what it is trained on; empty where that is not known.
func openStore(job *plan.Job, m *model.Model, t data.Tokenizer, text string, mode checkpoint.Mode) (s *store, err error) {
	s = &store{dir: job.Save.Dir, keep: job.Save.Keep}
	if s.dir == "" {
		if mode != checkpoint.Fresh {
			return nil, fmt.Errorf("save.dir is empty: there is nothing to resume from or to overwrite")
		}
		return s, nil
	}
	rule, err := optim.RuleOf(job.Train.Optimizer.Kind)
	if err != nil {
		return nil, err
	}
	file, err := yaml.Marshal(job)
	if err != nil {
		return nil, err
	}
	vocabulary := t.Marshal()
	s.meta = checkpoint.Meta{
		Parameters: checkpoint.Parameters(m),
		Optimizer:  job.Train.Optimizer.Kind,
		Kinds:      kinds[:1+rule.Moments],
		// What a run that goes on must share with the one before. train.precision is not among them: masters and moments
		// are float32 in either, so a run may go on in the other one, as it may with another learning rate.
		Facts: []checkpoint.Fact{
			{Key: "model.kind", Value: m.Kind},
			{Key: "model.heads", Value: fmt.Sprint(job.Model.Heads)},
			{Key: "vocabulary", Value: fmt.Sprintf("%s of %d tokens, sha256 %.12x", t.Kind(), t.Size(), sha256.Sum256(vocabulary))},
			{Key: "train.seed", Value: fmt.Sprint(job.Train.Seed)},
			{Key: "train.batch", Value: fmt.Sprint(job.Train.Batch)},
			{Key: "model.dropout", Value: fmt.Sprint(job.Model.Dropout)},
			{Key: "text", Value: fmt.Sprintf("sha256 %.12s", text)},
		},
		Job:       string(file),
		Tokenizer: string(vocabulary),
	}
	defer func() {
		if err != nil {
			s, err = nil, errors.Join(err, s.close())
		}
	}()
	// A folder that is not there yet, or cannot be one, is what Prepare deals with.
	if err := s.acquire(); errors.Is(err, checkpoint.ErrInUse) {
		return s, err
	}
	if mode == checkpoint.Overwrite {
		s.clears = true
		return s, checkpoint.Allow(s.dir, mode)
	}
	if err := checkpoint.Prepare(s.dir, mode); err != nil {
		return s, err
	}
	if err := s.acquire(); err != nil {
		return s, err
	}
	if mode != checkpoint.Resume {
		return s, nil
	}
	if s.opened, err = checkpoint.Open(s.dir); err != nil {
		return s, err
	}
	if err := s.opened.Match(s.meta); err != nil {
		return s, fmt.Errorf("resume from %s: %w", s.opened.Path(), err)
	}
	return s, nil
}

// acquire locks the folder, unless it is locked already.
func (s *store) acquire() (err error) {
	if s.lock == nil {
		s.lock, err = checkpoint.Acquire(s.dir)
	}
	return err
}

// begin removes the checkpoints that the run overwrites, or has gone back behind. It is called when all actors are alive and
// nothing can be refused any more.
func (s *store) begin() error {
	if s.stale {
		err := retry(lastPatience, s.over, func() error { return checkpoint.Forget(s.dir, s.first()) }, func(err error) {
			s.note(fmt.Sprintf("checkpoints cannot be removed, which is tried again for up to %s: %v", lastPatience, err))
		})
		if err != nil {
			return err
		}
		s.stale = false
		if s.newest == "" {
			return nil
		}
		if _, err := os.Stat(s.newest); errors.Is(err, fs.ErrNotExist) {
			s.newest = ""
			if s.opened != nil {
				s.newest = s.opened.Path()
			}
		}
		return nil
	}
	if !s.clears {
		return nil
	}
	if err := checkpoint.Prepare(s.dir, checkpoint.Overwrite); err != nil {
		return err
	}
	return s.acquire()
}

func (s *store) resumes() bool { return s.opened != nil }

func (s *store) first() int64 {
	if s.opened == nil {
		return 0
	}
	return s.opened.Meta().Step
}

// from is the entry of the journal for a run that goes on from the weights that the store has opened.
func (s *store) from(reason string, skip []SkipEntry) FromEntry {
	e := FromEntry{Steps: s.first(), Reason: reason, Skip: skip}
	if s.opened != nil {
		e.Commit = s.opened.Meta().Commit
	}
	return e
}

// use tells the store the plan that it serves.
func (s *store) use(p *plan.Plan) {
	s.plan = p
	s.owed = 0
	for rank := range p.Stages {
		for d := range p.Job.Layout.Data {
			if len(p.Parts(rank, d)) > 0 {
				s.owed++
			}
		}
	}
}

// close ends the use of the folder.
func (s *store) close() error { return errors.Join(s.leave(), s.lock.Release()) }

// leave closes the checkpoint that the run went on from.
func (s *store) leave() error {
	if s.opened == nil {
		return nil
	}
	return s.opened.Close()
}

// span is a run of elements of one parameter in a shard's part: elements [lo, lo+n) of it lie at off.
type span struct {
	bucket int
	name   string
	lo, n  int
	at     int // offset in the flat vector of the bucket
	off    int // offset in the weights of the shard
}

// spans are those of a shard, in the order of its State, and the elements of its weights.
func (s *store) spans(id plan.ActorID) ([]span, int) {
	p, d, _ := id.Rank()
	var out []span
	off := 0
	for _, part := range s.plan.Parts(p, d) {
		b := s.plan.Model.Buckets()[part.Bucket]
		for i, q := range b.Params {
			lo, hi := max(b.Offsets[i], part.Range.Lo), min(b.Offsets[i]+q.Len(), part.Range.Hi)
			if lo < hi {
				out = append(out, span{part.Bucket, q.Name, lo - b.Offsets[i], hi - lo, lo, off + lo - part.Range.Lo})
			}
		}
		off += part.Range.Len()
	}
	return out, off
}

// Restore reads the state of a shard from the checkpoint. When the last shard has its state,
// everything in the checkpoint has been used.
func (s *store) Restore(id plan.ActorID) ([]float32, error) {
	spans, n := s.spans(id)
	state := make([]float32, n*len(s.meta.Kinds))
	for k, kind := range s.meta.Kinds {
		for _, p := range spans {
			if err := s.opened.Read(p.name, kind, p.lo, p.lo+p.n, state[k*n+p.off:k*n+p.off+p.n]); err != nil {
				return nil, err
			}
		}
	}
	if s.owed--; s.owed > 0 {
		return state, nil
	}
	return state, s.opened.AllRead()
}

// Keep hashes the weights and, where there is a place for it, writes a checkpoint.
func (s *store) Keep(_ context.Context, step int64, states map[plan.ActorID][]float32) error {
	vectors := make([][]float32, len(s.plan.Buckets))
	for i, b := range s.plan.Model.Buckets() {
		vectors[i] = make([]float32, b.Len)
	}
	var ids []plan.ActorID
	for id, state := range states {
		spans, n := s.spans(id)
		if n == 0 || len(state)%n != 0 {
			return fmt.Errorf("state of %s has %d elements; it is a multiple of %d", id, len(state), n)
		}
		for _, p := range spans {
			copy(vectors[p.bucket][p.at:p.at+p.n], state[p.off:p.off+p.n])
		}
		ids = append(ids, id)
	}
	s.hash = model.Hash(s.plan.Model, func(bucket int) []float32 { return vectors[bucket] })
	if s.dir == "" || s.opened != nil && step == s.first() {
		return nil
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	if err := s.settle(step - 1); err != nil {
		return err
	}
	// A disk that is full for a while is no reason to stop: the checkpoints before are whole. At the end it is an error, but not
	// at once.
	patience := s.patience(step)
	s.unsaved = retry(patience, s.over, func() error { return s.write(step, ids, states) }, func(err error) {
		s.note(fmt.Sprintf("the last checkpoint cannot be written, and is tried again for up to %s: %v", patience, err))
	})
	if s.unsaved != nil && patience == 0 {
		s.note(fmt.Sprintf("step %d has no checkpoint, and the run goes on: %v", step, s.unsaved))
	}
	return nil
}

// whole are the steps of the complete checkpoints of at most atMost steps, the oldest first.
func (s *store) whole(atMost int64) ([]int64, error) {
	entries, err := checkpoint.List(s.dir)
	if err != nil {
		return nil, err
	}
	var steps []int64
	for _, e := range entries {
		if e.Err == nil && e.Step <= atMost {
			steps = append(steps, e.Step)
		}
	}
	return steps, nil
}

// target is the index of the checkpoint to go back to among those that are whole: the newest, or the newest one that is older
// than what the attempt has begun with; the oldest where none is. It is -1 where there is no checkpoint at all.
func (s *store) target(steps []int64, older bool) int {
	at := len(steps) - 1
	for older && at > 0 && steps[at] >= s.first() {
		at--
	}
	return at
}

// reach says how many checkpoints would be left out by going back, and whether there is one to go back to.
func (s *store) reach(older bool) (left int, any bool) {
	steps, err := s.whole(all)
	if err != nil {
		return 0, true // back says what is wrong
	}
	at := s.target(steps, older)
	return len(steps) - 1 - at, at >= 0
}

// back makes the store one of a run that goes on from an earlier checkpoint: the newest one of at most atMost steps, or one that
// is older than what the attempt has begun with. Where there is none, it goes on from the seed. When it begins, the checkpoints
// after that are removed: they are of steps that are undone, and that may be others next time.
func (s *store) back(atMost int64, older bool) error {
	steps, err := s.whole(atMost)
	if err != nil {
		return err
	}
	at := s.target(steps, older)
	if err := s.leave(); err != nil {
		return err
	}
	s.opened, s.clears, s.unsaved, s.stale = nil, false, nil, true
	// Where those from there down are damaged, one that was left out is better than the seed.
	order := slices.Clone(steps[:at+1])
	slices.Reverse(order)
	for _, step := range append(order, steps[at+1:]...) {
		c, err := checkpoint.OpenStep(s.dir, step)
		if errors.Is(err, checkpoint.ErrNone) {
			s.note(fmt.Sprintf("not resumed from: %v", err))
			continue
		}
		if err != nil {
			return err
		}
		if err := c.Match(s.meta); err != nil {
			return errors.Join(fmt.Errorf("resume from %s: %w", c.Path(), err), c.Close())
		}
		s.opened = c
		break
	}
	return nil
}

// all is more than any number of steps.
const all = math.MaxInt64

func (s *store) write(step int64, ids []plan.ActorID, states map[plan.ActorID][]float32) error {
	meta := s.meta
	meta.Step, meta.Commit = step, s.made
	w, err := checkpoint.Create(s.dir, meta)
	if err != nil {
		return err
	}
	defer w.Abort()
	for i, id := range ids {
		spans, n := s.spans(id)
		var pieces []checkpoint.Piece
		for k, kind := range meta.Kinds {
			for _, p := range spans {
				pieces = append(pieces, checkpoint.Piece{Name: p.name, Kind: kind, Lo: p.lo, Data: states[id][k*n+p.off : k*n+p.off+p.n]})
			}
		}
		if err := w.Add(i, pieces); err != nil {
			return err
		}
	}
	if err := w.Commit(); err != nil {
		return err
	}
	s.newest = w.Path()
	s.saved(CheckpointDone{Step: step, Path: w.Path()})
	if s.keep > 0 {
		return checkpoint.Prune(s.dir, s.keep)
	}
	return nil
}
