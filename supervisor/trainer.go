package supervisor

import (
	"errors"
	"fmt"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

// Schedule of a run: which rounds there are, and in which order. Steps count committed steps, so
// "at step s" means on the weights that s steps have made.
type Rounds struct {
	// First is the step of the weights that the run starts with; Until is the step at which it ends.
	First, Until int64
	// EvaluateEvery and SnapshotEvery are in steps; 0 means only at the end.
	EvaluateEvery, SnapshotEvery int64
	// Evaluates says that there are held-out micro-batches.
	Evaluates bool
}

// Due reports whether phase ph takes place at step s; ending says that the run ends at s.
func (r Rounds) due(s int64, ph plan.Phase, ending bool) bool {
	every := func(n int64) bool { return n > 0 && s > r.First && s%n == 0 }
	switch ph {
	case plan.EvaluatePhase:
		return r.Evaluates && (s == r.First || s >= r.Until || every(r.EvaluateEvery) && !ending)
	case plan.SnapshotPhase:
		return ending || every(r.SnapshotEvery)
	case plan.TrainPhase:
		return !ending
	}
	return false
}

// Trainer is the machine that starts and commits rounds. It walks its own program like every
// other actor; when that program has finished, every actor has reported, and the round is
// committed by the Start of the next one.
//
// Invariant: the rounds that it opens are strictly increasing, and a round is opened only when the
// one before it has finished everywhere.
type Trainer struct {
	plan   *plan.Plan
	rounds Rounds
	job    string
	walker *machine.Walker

	stopping bool // a clean stop was asked for
	stopped  bool // Stop was given
}

// NewTrainer returns the trainer of a plan. Begin starts it.
func NewTrainer(p *plan.Plan, r Rounds) *Trainer {
	return &Trainer{
		plan:   p,
		rounds: r,
		job:    p.Job.Name,
		walker: machine.NewWalker(p, plan.Trainer),
	}
}

// ID is plan.Trainer.
func (t *Trainer) ID() plan.ActorID { return plan.Trainer }

// Close ends the trainer and gives back what it holds.
func (t *Trainer) Close() []machine.Effect {
	t.stopped = true
	return t.walker.Close()
}

// Waiting describes what the trainer waits for.
func (t *Trainer) Waiting() machine.Wait { return t.walker.Waiting() }

// Handle is one step of the machine.
func (t *Trainer) Handle(e machine.Event) []machine.Effect {
	if t.stopped {
		// Whatever still comes is not needed; references go back.
		return machine.Discard(e)
	}
	switch e := e.(type) {
	case machine.Begin:
		return t.open(nil, plan.Round{Step: t.rounds.First, Phase: plan.InitPhase})
	case machine.Interrupt:
		t.stopping = true
		return nil
	case machine.Failed:
		return t.stop(nil, &Failure{Actor: e.Actor, Node: e.Node, Round: e.Round, Op: e.Op, Cause: errors.New(e.Cause)})
	}
	return t.walk(t.walker.Handle(e))
}

// walk looks at what the trainer's own program did: it may have failed, or finished the round.
func (t *Trainer) walk(effects []machine.Effect) []machine.Effect {
	for _, e := range effects {
		if f, ok := e.(machine.Fail); ok {
			return t.stop(effects, &Failure{Actor: plan.Trainer, Round: f.Round, Op: f.Op, Cause: f.Cause})
		}
	}
	if !t.walker.Finished() {
		return effects
	}
	next, ok := t.next(t.walker.Round())
	if !ok {
		return t.stop(effects, nil)
	}
	return t.open(effects, next)
}

// next is the round after done.
func (t *Trainer) next(done plan.Round) (plan.Round, bool) {
	s, ph := done.Step, done.Phase+1
	if done.Phase == plan.TrainPhase {
		s, ph = s+1, plan.EvaluatePhase
	}
	ending := t.stopping || s >= t.rounds.Until
	for ; ph < plan.Phases; ph++ {
		if t.rounds.due(s, ph, ending) {
			return plan.Round{Step: s, Phase: ph}, true
		}
	}
	return plan.Round{}, false
}

// open starts a round at every actor and then at the trainer itself.
func (t *Trainer) open(effects []machine.Effect, r plan.Round) []machine.Effect {
	for _, a := range t.plan.Actors {
		if a.ID == plan.Trainer {
			continue
		}
		effects = append(effects, machine.Send{Message: machine.Message{Name: machine.Name{
			Job: t.job, Round: r, From: plan.Trainer, To: a.ID, Value: plan.Value{Kind: plan.Start, Piece: -1},
		}}})
	}
	return append(effects, t.walk(t.walker.Open(r))...)
}

func (t *Trainer) stop(effects []machine.Effect, err error) []machine.Effect {
	t.stopped = true
	return append(effects, machine.Stop{Err: err})
}

// Failure is the error of a run that an actor could not go on with.
type Failure struct {
	Actor plan.ActorID
	Node  string
	Round plan.Round
	Op    string
	Cause error
}

func (f *Failure) Error() string {
	where := string(f.Actor)
	if f.Node != "" {
		where += " on " + f.Node
	}
	at := f.Round.String()
	if f.Op != "" {
		at += ", " + f.Op
	}
	return fmt.Sprintf("%s failed in %s: %v", where, at, f.Cause)
}

func (f *Failure) Unwrap() error { return f.Cause }
