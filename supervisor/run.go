package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/data"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
)

// Run trains a job in this process and returns what it did. When ctx ends, the run stops cleanly
// after the step that is running, with a checkpoint where the job has a place for one. An error is a *Failure when an actor failed.
func Run(ctx context.Context, job *plan.Job, opts ...Option) (*Result, error) {
	o := newOptions(opts)
	r, err := prepare(job, o, 0)
	if err != nil {
		return nil, err
	}
	defer r.store.close()
	node, err := actors.NewNode(actors.Options{
		Job: r.plan.Job.Name, Placement: r.plan.Actors, Observer: r.observer(), Log: r.note,
	})
	if err != nil {
		return nil, err
	}
	return r.conduct(ctx, node, actors.Coordination{Nodes: 1, Deadline: seconds(job.Supervisor.Deadline)}, nil)
}

// run is a job on its way at the node that holds the trainer.
type run struct {
	options   options
	plan      *plan.Plan
	tokenizer data.Tokenizer
	rounds    Rounds
	store     *store
	ledger    *ledger
	cast      *cast
	source    Source
	stopped   chan error
}

// prepare does everything that can fail before an actor lives: model, data, checkpoint, plan.
func prepare(job *plan.Job, o options, nodes int) (*run, error) {
	r := &run{options: o, stopped: make(chan error, 1), source: o.source}
	m := o.model
	r.tokenizer = data.Bytes
	if m == nil || o.source == nil {
		t, err := data.OpenTokenizer(job.Model.Vocab)
		if err != nil {
			return nil, err
		}
		r.tokenizer = t
	}
	if m == nil {
		var err error
		if m, err = BuildModel(job, r.tokenizer.Size()); err != nil {
			return nil, err
		}
	}
	if r.source == nil {
		if err := checkVocab(m, r.tokenizer); err != nil {
			return nil, err
		}
		d, err := OpenData(job, r.tokenizer)
		if err != nil {
			return nil, err
		}
		r.source = d
		s := d.Stats()
		r.note(fmt.Sprintf("data: %d files, %d tokens for training, %d held out", s.Files, s.TrainTokens, s.HeldTokens))
	}
	var err error
	if r.store, err = openStore(job, m, r.tokenizer, o.mode); err != nil {
		return nil, err
	}
	if r.plan, err = plan.New(job, m, plan.Options{Resume: r.store.resumes(), Nodes: nodes}); err != nil {
		return nil, errors.Join(err, r.store.close())
	}
	r.store.use(r.plan)
	r.rounds = rounds(r.plan, r.store.first(), o.stopAt)
	r.ledger = newLedger(r.plan, r.rounds.First, r.rounds.Until, time.Now, o.progress)
	r.store.saved = func(c CheckpointDone) { o.progress(Progress{Checkpoint: &c}) }
	r.note(describe(r.plan, m))
	if r.store.resumes() {
		for _, reason := range r.store.opened.Skipped() {
			r.note(fmt.Sprintf("not resumed from: %v", reason))
		}
		r.note(fmt.Sprintf("resuming at step %d from %s", r.rounds.First, r.store.opened.Path()))
	}
	return r, nil
}

// rounds is the schedule of a run that starts at step first.
func rounds(p *plan.Plan, first, stopAt int64) Rounds {
	job := p.Job
	until := job.Train.Steps
	if stopAt > 0 {
		until = min(until, stopAt)
	}
	r := Rounds{First: first, Until: max(first, until), EvaluateEvery: job.Train.Evaluate.Every, Evaluates: len(p.Held) > 0}
	if job.Save.Dir != "" {
		r.SnapshotEvery = job.Save.Every
	}
	return r
}

// describe is the line that says what was built.
func describe(p *plan.Plan, m *model.Model) string {
	l := p.Job.Layout
	return fmt.Sprintf("model: %s, %d parameters in %d layers; pipeline %d, data %d, schedule %s, %d micro-batches a step",
		m.Kind, m.Len(), len(m.Layers), l.Pipeline, l.Data, l.Schedule, len(p.Train))
}

func (r *run) note(line string) { r.options.progress(Progress{Note: &line}) }

func (r *run) observer() actors.Observer {
	return actors.Observer{Stop: func(err error) {
		select {
		case r.stopped <- err:
		default: // the first reason counts
		}
	}}
}

// closeWait is how long the actors of a node may take to end.
const closeWait = 10 * time.Second

// conduct brings the actors of this node to life, starts the other nodes and waits for them, and
// sets the trainer going.
func (r *run) conduct(ctx context.Context, node *actors.Node, c actors.Coordination, spawn func(context.Context, func(error)) error) (result *Result, err error) {
	trainer := &Executor{Plan: r.plan, Source: r.source, State: r.store, Finished: r.ledger.finished}
	r.cast = newCast(r.plan, r.options.device)
	defer func() { err = errors.Join(err, r.end(node)) }()
	if err := r.cast.spawn(node, NewTrainer(r.plan, r.rounds), trainer); err != nil {
		return nil, err
	}
	coordinator, err := node.Coordinate(c)
	if err != nil {
		return nil, err
	}
	if err := r.gather(ctx, coordinator, spawn); err != nil {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
		defer cancel()
		return nil, errors.Join(err, coordinator.Shutdown(down, err.Error()))
	}
	if err := node.Send(plan.Trainer, machine.Begin{}); err != nil {
		return nil, err
	}
	interrupted := ctx.Done()
	for {
		select {
		case <-interrupted:
			interrupted = nil
			r.ledger.interrupt()
			if err := node.Send(plan.Trainer, machine.Interrupt{}); err != nil {
				return nil, err
			}
		case err := <-r.stopped:
			reason := ""
			if err != nil {
				reason = err.Error()
			}
			down, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
			defer cancel()
			if e := coordinator.Shutdown(down, reason); err == nil {
				err = e
			}
			if err != nil {
				return nil, err
			}
			result = r.ledger.close()
			result.WeightsSHA256 = r.store.hash
			result.Checkpoint = r.store.newest
			return result, nil
		}
	}
}

// gather starts the other nodes and waits until all are ready. A node that ends before that ends the wait.
func (r *run) gather(ctx context.Context, c *actors.Coordinator, spawn func(context.Context, func(error)) error) error {
	if spawn == nil {
		return c.Gather(ctx)
	}
	gathering, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := spawn(ctx, func(err error) { cancel(err) }); err != nil {
		return err
	}
	return c.Gather(gathering)
}

// end closes the node and then what its actors lived on. It does not wait for ever: an operation
// that hangs is named and left behind.
func (r *run) end(node *actors.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if err := node.Close(ctx); err != nil {
		return err
	}
	return r.cast.close()
}
