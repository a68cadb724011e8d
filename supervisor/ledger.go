package supervisor

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
)

// ledger takes down what the rounds of a run have brought, and tells of it. It is used on the
// trainer's stream alone until the run has ended.
type ledger struct {
	plan    *plan.Plan
	until   int64
	now     func() time.Time
	observe func(Progress)

	result  Result
	started time.Time // of the first training step
	last    time.Time // when the round before ended
	actors  map[plan.ActorID]*ActorResult
	bubbles []float64
	skipped []int64 // steps
	// newest is the newest round that was taken in, if any was: a trainer that was restarted may tell of it again.
	newest *plan.Round
	// commit makes a committed step durable; slow hears how long the stages computed in it.
	commit func(StepEntry) error
	slow   func(plan.Round, map[plan.ActorID]Measured)
	// shares are those of the newest step.
	shares plan.Shares
	mu     sync.Mutex
	why    map[plan.Shares]string // the newest reason for shares that were decided on
	// windows is the number of samples of an epoch, or 0.
	windows int64

	// outside counts the time of training steps, and that in which an operation ran.
	steps, inside time.Duration
}

func newLedger(p *plan.Plan, first, until int64, now func() time.Time, observe func(Progress)) *ledger {
	l := &ledger{plan: p, until: until, now: now, observe: observe, actors: map[plan.ActorID]*ActorResult{}, why: map[plan.Shares]string{}, last: now()}
	l.result = Result{
		Job: p.Job.Name, Parameters: p.Model.Len(), Steps: first, Validation: []Point{}, Shifts: []ShiftDone{},
		PeakBytes: map[plan.ActorID]int64{}, SentBytes: map[string]int64{}, MovedBytes: map[string]int64{},
	}
	for _, a := range p.Actors {
		l.actors[a.ID] = &ActorResult{ID: a.ID, Role: a.ID.Role(), Node: fmt.Sprint(a.Node)}
	}
	return l
}

// finished takes in a round.
func (l *ledger) finished(o Outcome) error {
	now := l.now()
	elapsed := now.Sub(l.last)
	l.last = now
	reports := map[plan.ActorID]*messages.ActorReport{}
	for id, b := range o.Reports {
		r := new(messages.ActorReport)
		if err := proto.Unmarshal(b, r); err != nil {
			return fmt.Errorf("report of %s: %w", id, err)
		}
		reports[id] = r
	}
	if o.Round.Phase == plan.TrainPhase && l.commit != nil {
		if err := l.commit(l.entry(o, reports)); err != nil {
			return err
		}
	}
	if l.newest != nil && !l.newest.Before(o.Round) {
		return nil
	}
	l.newest = &o.Round
	for id, r := range reports {
		l.account(id, r)
	}
	switch o.Round.Phase {
	case plan.EvaluatePhase:
		p := Point{Step: o.Round.Step, Loss: o.Loss(plan.Rows(l.plan.Held) * l.plan.Model.Context)}
		l.result.Validation = append(l.result.Validation, p)
		l.observe(Progress{Evaluated: &p})
	case plan.TrainPhase:
		l.step(o, elapsed, reports)
	}
	return nil
}

// entry is what the journal says of a step.
func (l *ledger) entry(o Outcome, reports map[plan.ActorID]*messages.ActorReport) StepEntry {
	batch := int64(l.plan.Job.Train.Batch)
	e := StepEntry{
		Step: o.Round.Step, First: o.Round.Step * batch, Last: (o.Round.Step+1)*batch - 1, Skipped: o.Skipped,
		Shares: o.Round.Shares,
		Loss:   Number(o.Loss(plan.Rows(l.plan.Train) * l.plan.Model.Context)), Norm: Number(o.Norm), Verdict: Number(o.Verdict),
	}
	if l.windows > 0 {
		e.Epoch = e.First / l.windows
	}
	for id, r := range reports {
		if r.Restarts > 0 {
			if e.Lives == nil {
				e.Lives = map[plan.ActorID]int{}
			}
			e.Lives[id] = int(r.Restarts)
		}
	}
	return e
}

// back undoes what was committed from a step on.
func (l *ledger) back(p *plan.Plan, step, until int64) {
	r := &l.result
	undone := min(r.StepsRun, max(0, r.Steps-step))
	r.StepsRun -= undone
	r.Tokens -= undone * int64(plan.Rows(p.Train)*p.Model.Context)
	r.Steps = step
	l.skipped = slices.DeleteFunc(l.skipped, func(s int64) bool { return s >= step })
	r.Validation = slices.DeleteFunc(r.Validation, func(v Point) bool { return v.Step >= step })
	r.Shifts = slices.DeleteFunc(r.Shifts, func(s ShiftDone) bool { return s.Step >= step })
	l.shares = "" // those of the plan, again
	if n := len(r.Shifts); n > 0 {
		l.shares = p.SharesOf(r.Shifts[n-1].Shares)
	}
	l.plan, l.until, l.newest, l.last = p, until, nil, l.now()
}

func (l *ledger) account(id plan.ActorID, r *messages.ActorReport) {
	a := l.actors[id]
	a.Node = r.Node
	a.BusySeconds += time.Duration(r.BusyNs).Seconds()
	a.PeakBytes = max(a.PeakBytes, r.PeakBytes)
	for k, n := range r.SentBytes {
		l.result.SentBytes[k] += n
	}
	for k, n := range r.MovedBytes {
		l.result.MovedBytes[k] += n
	}
}

// trainer takes in what the trainer did, which sends no report to itself.
func (l *ledger) trainer(node string, stats []actors.Stats) {
	i := slices.IndexFunc(stats, func(s actors.Stats) bool { return s.Actor == plan.Trainer })
	if i < 0 {
		return
	}
	s := stats[i]
	l.account(plan.Trainer, &messages.ActorReport{
		Node: node, BusyNs: int64(s.Busy), PeakBytes: s.Peak,
		SentBytes: s.Sent.Map(), MovedBytes: s.Moved.Map(),
	})
}

func (l *ledger) step(o Outcome, elapsed time.Duration, reports map[plan.ActorID]*messages.ActorReport) {
	tokens := plan.Rows(l.plan.Train) * l.plan.Model.Context
	r := &l.result
	done := StepDone{
		Step: o.Round.Step + 1, Of: l.until, Loss: o.Loss(tokens), GradNorm: o.Norm,
		LR: optim.LearningRate(l.plan.Job.Train, o.Round.Step), Tokens: int64(tokens), Elapsed: elapsed,
		Skipped: o.Skipped,
	}
	if l.started.IsZero() {
		l.started = l.last.Add(-elapsed)
	}
	if o.Skipped == "" {
		if r.LossFirst == nil {
			r.LossFirst = &done.Loss
		}
		r.LossLast, r.GradNormLast = &done.Loss, &done.GradNorm
	} else {
		l.skipped = append(l.skipped, o.Round.Step)
	}
	if o.Round.Shares != l.shares {
		l.shares = o.Round.Shares
		r.Shifts = append(r.Shifts, ShiftDone{Step: o.Round.Step, Shares: l.plan.CountsOf(l.shares), Reason: l.reason(l.shares)})
	}
	r.StepsRun++
	r.Steps = done.Step
	r.Tokens += done.Tokens
	r.Seconds = l.last.Sub(l.started).Seconds()
	var window, busy, inside time.Duration
	measured := map[plan.ActorID]Measured{}
	for id, rep := range reports {
		inside += time.Duration(rep.BusyNs)
		if id.Role() != "stage" {
			continue
		}
		measured[id] = Measured{int(rep.Restarts), time.Duration(rep.ComputeBusyNs)}
		window = max(window, time.Duration(rep.ComputeWindowNs))
		if c := time.Duration(rep.ComputeBusyNs); c > busy {
			busy, done.Slowest, done.Busy = c, id, c
		}
	}
	if busy > 0 {
		l.bubbles = append(l.bubbles, float64(window-busy)/float64(busy))
	}
	l.steps += elapsed
	r.TokensPerSecond = float64(r.Tokens) / l.steps.Seconds()
	l.inside += inside
	done.Window, done.Inside = window, inside
	l.observe(Progress{Step: &done})
	if l.slow != nil {
		l.slow(o.Round, measured)
	}
}

// because takes down why steps are to be run by shares; it may be called at any time.
func (l *ledger) because(s plan.Shares, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why[s] = reason
}

func (l *ledger) reason(s plan.Shares) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why[s]
}

// close returns the result of the run, in which actors were restarted so often.
func (l *ledger) close(restarts map[plan.ActorID]int) *Result {
	r := l.result
	r.Stopped = r.Steps < l.plan.Job.Train.Steps
	r.SkippedSteps = len(l.skipped)
	if n := len(l.bubbles); n > 0 {
		slices.Sort(l.bubbles)
		r.Bubble = l.bubbles[n/2]
	}
	if r.StepsRun > 0 && len(l.plan.Stages) == 1 && l.plan.Job.Layout.Data == 1 {
		outside := 1 - l.inside.Seconds()/l.steps.Seconds()
		r.Outside = &outside
	}
	for _, a := range l.plan.Actors {
		x := l.actors[a.ID]
		r.PeakBytes[a.ID] = x.PeakBytes
		x.Restarts = restarts[a.ID]
		r.Restarts += x.Restarts
		r.Actors = append(r.Actors, *x)
	}
	return &r
}
