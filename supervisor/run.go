package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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
	clock := new(actors.Clock)
	faults, err := newInjector(o.faults, r.plan, scene{nodes: 1, clock: clock, note: r.note})
	if err != nil {
		return nil, err
	}
	defer faults.missed()
	return r.attempts(ctx, func(o *root) (*footing, error) {
		faults.tells(o)
		node, err := actors.NewNode(actors.Options{
			Job: r.plan.Job.Name, Placement: r.plan.Actors, Observer: o.observer(), Log: r.note, Faults: faultsOf(faults), Clock: clock,
		})
		if err != nil {
			return nil, err
		}
		faults.on(node)
		return &footing{node: node, coordination: actors.Coordination{Nodes: 1, Deadline: seconds(job.Supervisor.Deadline)}}, nil
	})
}

// run is a job on its way at the node that holds the trainer.
type run struct {
	options   options
	plan      *plan.Plan
	tokenizer data.Tokenizer
	nodes     int // besides this one, that the plan puts actors on
	spares    int // more that the attempt gathers
	wanted    int // nodes and spares of an attempt to which all come
	rounds    Rounds
	store     *store
	journal   *Journal // nil where there is no place for it
	judge     *Judge
	ledger    *ledger
	cast      *cast
	source    Source
	stopped   chan error

	limits   Limits
	recovery *Recovery
	time     steady // of the clock of this node, for its root
	timeline *Timeline
	restarts map[plan.ActorID]int
	resumes  int
	// undoes is the entry of the journal that the attempt which has not begun yet begins with.
	undoes *FromEntry

	crew    *crew // nil in a run of one process
	attempt uint64
	over    atomic.Bool // the attempt is: nobody waits for what its trainer still does
	// gathers is when the nodes were first asked to come for the state that the attempt begins from.
	gathers time.Time
	// why the attempt begins, if it is not the first.
	why string
	// saved is the train step at which the newest checkpoint goes on, which is written while the root reads.
	saved atomic.Int64

	// wind asks for a clean end of the run, with a checkpoint; winds says that it was asked for.
	wind  func()
	winds atomic.Bool

	mu        sync.Mutex
	displaced *Displaced // what has become of save.dir, if it was not left alone
}

// prepare does everything that can fail before an actor lives: model, data, checkpoint, plan.
func prepare(job *plan.Job, o options, nodes int) (*run, error) {
	r := &run{options: o, source: o.source, nodes: nodes, restarts: map[plan.ActorID]int{}, timeline: NewTimeline(time.Now())}
	r.time.at(time.Now())
	if nodes > 0 {
		r.spares = job.Cluster.Spares
	}
	r.wanted = nodes + r.spares
	var windows int64
	var text string
	var notes []string // told when nothing can be refused any more
	m := o.model
	r.tokenizer = data.Bytes
	if m == nil || o.source == nil {
		t, err := OpenTokenizer(job)
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
		windows, text = s.Windows, s.SHA256
		notes = append(notes, fmt.Sprintf("data: %d files, %d tokens for training, %d held out", s.Files, s.TrainTokens, s.HeldTokens))
	}
	var err error
	if r.store, err = openStore(job, m, r.tokenizer, text, o.mode); err != nil {
		return nil, err
	}
	if r.plan, err = plan.New(job, m, plan.Options{Resume: r.store.resumes(), Nodes: nodes}); err != nil {
		return nil, errors.Join(err, r.store.close())
	}
	if err := r.plan.Fits(); err != nil {
		return nil, errors.Join(err, r.store.close())
	}
	r.store.use(r.plan)
	r.rounds = rounds(r.plan, r.store.first(), o.stopAt)
	r.ledger = newLedger(r.plan, r.rounds.First, r.rounds.Until, time.Now, o.progress)
	r.ledger.windows = windows
	r.stands()
	r.store.saved = func(c CheckpointDone) {
		r.saved.Store(c.Step)
		o.progress(Progress{Checkpoint: &c})
	}
	r.store.note = r.note
	r.store.over = r.over.Load
	r.store.patience = func(step int64) time.Duration {
		if step < r.rounds.Until && !r.winds.Load() {
			return 0
		}
		return min(lastPatience, r.patience())
	}
	r.store.settle = r.settle
	r.limits = LimitsOf(job)
	r.recovery = NewRecovery(r.limits, Seats(r.plan), r.hosts())
	notes = append(notes, describe(r.plan, m))
	notes = append(notes, remarks(r.plan, r.store.first(), nodes > 0)...)
	if r.store.resumes() {
		for _, reason := range r.store.opened.Skipped() {
			notes = append(notes, fmt.Sprintf("not resumed from: %v", reason))
		}
		notes = append(notes, fmt.Sprintf("resuming at train step %d from %s", r.rounds.First, r.store.opened.Path()))
	}
	for _, line := range notes {
		r.note(line)
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
	line := fmt.Sprintf("model: %s, %d parameters in %d layers; pipeline %d, data %d, schedule %s, %d micro-batches a step",
		m.Kind, m.Len(), len(m.Layers), l.Pipeline, l.Data, l.Schedule, len(p.Train))
	if len(l.Shares) > 0 {
		line += fmt.Sprintf(", of which the data ranks run %s", plan.SharesOf(p.Shares()))
	}
	return line
}

func (r *run) note(line string) { r.options.note(line) }

// hosts are the nodes that may hold actors: spares too.
func (r *run) hosts() []int {
	return workers(r.nodes + r.spares)
}

// decided tells of a decision of the supervisor.
func (r *run) decided(d Decision) {
	text := d.String()
	r.options.progress(Progress{Decision: &text})
}

// stop is told that the trainer has ended the run. The first reason counts.
func (r *run) stop(err error) {
	select {
	case r.stopped <- err:
	default:
	}
}

// watchSlow has the root told of slow stages.
func (r *run) watchSlow(o *root) {
	watch := NewSlowWatch(r.plan)
	shifter := NewShifter(r.plan, watch)
	r.ledger.slow = func(round plan.Round, stages map[plan.ActorID]Measured) {
		for _, s := range watch.Step(round.Shares, stages) {
			r.decided(Noted{fmt.Sprintf("%s is slow: %s", s.Actor, s.Reason)})
			if watch.policy.Policy == "move" {
				o.inbox.add(s)
			}
		}
		if watch.policy.Policy == "shift" {
			if d := shifter.Step(round.Shares, stages); d != nil {
				o.inbox.add(d)
			}
		}
	}
}

// conduct is one attempt: it brings the actors of this node to life, starts the other nodes and waits for them, sets the
// trainer going, and is the root supervisor until the attempt ends.
func (r *run) conduct(ctx context.Context, o *root, f *footing) (result *Result, again *back, err error) {
	node := f.node
	o.node = node
	r.cast = newCast(r.plan, r.options.device)
	defer func() { err = errors.Join(err, r.cast.end(node, r.note)) }()
	if err := r.cast.spawn(node); err != nil {
		return nil, nil, err
	}
	if err := o.trainer(0); err != nil {
		return nil, nil, err
	}
	o.watch(&f.coordination)
	if c := &f.coordination; c.Join > 0 {
		c.Join = max(c.Join-time.Since(r.gathers), time.Millisecond)
	}
	coordinator, err := node.Coordinate(f.coordination)
	if err != nil {
		return nil, nil, err
	}
	o.coordinator = coordinator
	switch err := r.gather(ctx, coordinator); {
	case err == nil:
	case ctx.Err() != nil:
		err := fmt.Errorf("interrupted before train step %d began", r.rounds.First)
		if r.store.resumes() {
			err = fmt.Errorf("%w; --resume goes on there", err)
		}
		return nil, nil, r.shutdown(ctx, coordinator, err)
	case errors.Is(err, actors.ErrLost):
		// Nothing has begun. But a node that is out of reach may come back, and is told from the one in its place only by
		// the attempt that it belongs to.
		r.decided(Noted{fmt.Sprintf("the nodes are gathered anew: %v", err)})
		r.again(ctx, coordinator)
		return nil, &back{ungathered: true}, nil
	case r.fewer(err):
		r.again(ctx, coordinator)
		return nil, &back{ungathered: true}, nil
	default:
		if r.why != "" {
			err = fmt.Errorf("%w; the job had gone back to a checkpoint: %s", err, r.why)
		}
		return nil, nil, r.shutdown(ctx, coordinator, fmt.Errorf("%w%s", err, r.resumption()))
	}
	if err := r.begin(o); err != nil {
		return nil, nil, r.shutdown(ctx, coordinator, err)
	}
	end := o.loop(ctx)
	r.over.Store(true)
	if end.back != nil {
		end.back.at = o.opened.Step
		why := errors.New(end.back.reason)
		if err := r.displacement(why); err != why { // there is nothing to go back to: the nodes are not to join again
			return nil, nil, r.shutdown(ctx, coordinator, err)
		}
		r.again(ctx, coordinator)
		return nil, end.back, nil
	}
	if end.err = r.displacement(end.err); end.err == nil && r.store.unsaved != nil {
		end.err = fmt.Errorf("the run has come to its end, but its last checkpoint was not written: %w", r.store.unsaved)
	}
	if err := r.shutdown(ctx, coordinator, end.err); err != nil {
		return nil, nil, err
	}
	recoveries, ended := r.timeline.End(o.now())
	o.tell(ended)
	r.ledger.trainer(node.Name(), node.Stats())
	result = r.ledger.close(r.restarts)
	result.Resumes, result.Recoveries = r.resumes, append([]Recovered{}, recoveries...)
	result.WeightsSHA256 = r.store.hash
	result.Checkpoint = r.store.newest
	return result, nil, nil
}

// begin sets the trainer going. From here on the run changes what is on the disk.
func (r *run) begin(o *root) error {
	if err := r.store.begin(); err != nil {
		return err
	}
	r.stands()
	if err := r.record(); err != nil {
		return err
	}
	r.watchSlow(o)
	r.wind = func() { o.inbox.add(wind{}) }
	o.executor.Judge = r.judge
	return o.node.Send(plan.Trainer, machine.Begin{})
}

// shutdown ends the run on all nodes, for a reason or in good order. Its error is the reason if there is one.
func (r *run) shutdown(ctx context.Context, c *actors.Coordinator, reason error) error {
	r.crew.end()
	text := ""
	if reason != nil {
		text = reason.Error()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	if err := c.Shutdown(ctx, text); reason == nil {
		return err
	}
	return reason
}
