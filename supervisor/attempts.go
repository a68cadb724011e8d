package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-train/troupe/actors"
)

// footing is what an attempt at a run stands on.
type footing struct {
	node         *actors.Node
	coordination actors.Coordination
}

// attempts makes attempts at the run until one ends it: the next begins from an earlier checkpoint, or where this one has, if
// it did not get its nodes.
func (r *run) attempts(ctx context.Context, stand func(*root) (*footing, error)) (*Result, error) {
	defer func() {
		if r.journal != nil {
			_ = r.journal.Close() // every entry is on the disk
		}
	}()
	r.gathers = time.Now()
	for {
		r.attempt++
		r.over.Store(false)
		r.stopped = make(chan error, 1)
		o := newRoot(r)
		f, err := stand(o)
		if err != nil {
			return nil, err
		}
		result, again, err := r.conduct(ctx, o, f)
		if again == nil || err != nil {
			return result, err
		}
		if again.ungathered {
			continue
		}
		if err := r.intact(again.at, errors.New(again.reason)); err != nil {
			return nil, err
		}
		if err := r.back(again); err != nil {
			return nil, err
		}
		r.crew.afresh()
		r.why = again.reason
		r.gathers = time.Now()
	}
}

// back prepares an attempt that begins from an earlier checkpoint.
func (r *run) back(b *back) error {
	if err := r.store.back(b.atMost, b.older); err != nil {
		return fmt.Errorf("go back to a checkpoint: %w", err)
	}
	if err := r.anew(r.wanted); err != nil {
		return err
	}
	r.timeline.Abandon()
	r.resumes++
	from := "the seed, as there is no checkpoint to go back to"
	if r.store.resumes() {
		from = r.store.opened.Path()
	}
	r.note(fmt.Sprintf("going on at train step %d from %s", r.rounds.First, from))
	// What is on the disk stays as it is until the attempt begins.
	undoes := r.store.from(b.reason, b.skip)
	r.undoes = &undoes
	return nil
}

// record opens the journal, where there is a place for it, and makes the judge of what is in it.
func (r *run) record() error {
	var ledger *Ledger
	var skip func(int64, string) error
	if r.store.dir != "" {
		if r.journal == nil {
			j, err := OpenJournal(r.store.dir, RunEntry{
				Job: r.plan.Job.Name, Fingerprint: r.store.meta.Fingerprint(), Batch: r.plan.Job.Train.Batch, Windows: r.ledger.windows,
			}, r.store.from("", nil), r.plan.Job.Supervisor.BadBatch)
			if err != nil {
				return err
			}
			j.patience, j.over, j.note = r.patience(), r.over.Load, r.note
			r.journal = j
			if l := j.Ledger(); l.Runs == 1 && l.Began > 0 {
				r.note(fmt.Sprintf("the journal %s is missing or empty; a new one begins at train step %d", j.path, l.Began))
			}
		} else if r.undoes != nil {
			if err := r.journal.Back(*r.undoes); err != nil {
				return err
			}
		}
		r.undoes = nil
		ledger, skip = r.journal.Ledger(), r.journal.Skip
	}
	r.judge = NewJudge(r.plan.Job.Supervisor.BadBatch, ledger, skip)
	r.ledger.commit = func(s StepEntry) error {
		if r.journal != nil {
			if err := r.journal.Commit(s); err != nil {
				return err
			}
		}
		if err := r.settle(s.Step); err != nil {
			return err
		}
		r.store.made = s.Mark()
		r.judge.Committed(s.Step, float64(s.Loss), s.Skipped != "")
		return nil
	}
	return nil
}
