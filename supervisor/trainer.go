package supervisor

import (
	"errors"
	"fmt"
	"slices"

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
// It also leads actors that begin a new life back into the run: it announces them, sends them
// through Recover, and does not let the round end before they have caught up.
//
// Invariant: the rounds that it opens are strictly increasing, and a round is opened only when the
// one before it has finished everywhere.
type Trainer struct {
	plan   *plan.Plan
	rounds Rounds
	job    string
	walker *machine.Walker

	incarnation int
	// first is the round that Begin opens.
	first plan.Round
	// lives are the actors that have begun a new life, and the round into which they recover. Those in
	// late recover into the next one, because the round that is open had begun to end.
	lives map[plan.ActorID]machine.PeerIs
	late  map[plan.ActorID]bool

	// shares are those of the training steps that it opens from now on.
	shares plan.Shares

	begun    bool // a round has been opened
	stopping bool // a clean stop was asked for
	stopped  bool // Stop was given
}

// TrainerOption changes a Trainer.
type TrainerOption func(*Trainer)

// Reopen makes a trainer that begins a new life. open is the first round that has not committed, by
// the journal; it is opened again, and every actor sends the trainer again what it had sent in it. lives are the
// incarnations of the actors that are not in their first.
func Reopen(incarnation int, open plan.Round, lives map[plan.ActorID]int) TrainerOption {
	return func(t *Trainer) {
		t.incarnation, t.first = incarnation, open
		for a, n := range lives {
			if n > 0 && a != plan.Trainer {
				t.lives[a] = machine.PeerIs{Peer: a, Incarnation: n, Round: open}
				t.late[a] = true
			}
		}
	}
}

// WithShares makes a trainer that runs steps by given shares until it is told others.
func WithShares(s plan.Shares) TrainerOption { return func(t *Trainer) { t.shares = s } }

// NewTrainer returns the trainer of a plan. Begin starts it.
func NewTrainer(p *plan.Plan, r Rounds, options ...TrainerOption) *Trainer {
	t := &Trainer{
		plan:   p,
		rounds: r,
		job:    p.Job.Name,
		first:  plan.Round{Step: r.First, Phase: plan.InitPhase},
		lives:  map[plan.ActorID]machine.PeerIs{},
		late:   map[plan.ActorID]bool{},
	}
	for _, o := range options {
		o(t)
	}
	t.walker = machine.NewWalker(p, plan.Trainer, machine.Incarnation(t.incarnation))
	return t
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
		return t.begin()
	case machine.Interrupt:
		t.stopping = true
		return nil
	case machine.Reshare:
		t.shares = e.Shares
		return nil
	case machine.Restarted:
		return t.restarted(e)
	case machine.Failed:
		if e.Actor == "" { // a node was lost, which knows of no round
			e.Round = t.walker.Round()
		}
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
			next := plan.Round{Step: s, Phase: ph}
			if ph == plan.TrainPhase {
				next.Shares = t.shares
			}
			return next, true
		}
	}
	return plan.Round{}, false
}

// open starts a round at every actor and then at the trainer itself. That it is open is said before anybody is told to
// begin: whoever has begun cannot go back, so a trainer that ends in between must open this round again, and not the one before.
func (t *Trainer) open(effects []machine.Effect, r plan.Round) []machine.Effect {
	t.begun = true
	if len(t.late) > 0 {
		effects = slices.Clone(effects) // the walker's, who is told of lives now
	}
	effects = append(effects, machine.Committed{Round: r})
	// A new life is announced before the round opens anywhere, so that it is given what it needs in it.
	for _, a := range t.plan.Actors {
		if t.late[a.ID] {
			effects = append(effects, t.announce(a.ID, r)...)
		}
	}
	for _, a := range t.plan.Actors {
		switch {
		case a.ID == plan.Trainer:
		case t.late[a.ID]:
			delete(t.late, a.ID)
			effects = t.lead(effects, a.ID, r)
		default:
			effects = append(effects, t.start(a.ID, r))
		}
	}
	own := slices.DeleteFunc(t.walker.Open(r), func(e machine.Effect) bool { _, ok := e.(machine.Committed); return ok })
	return append(effects, t.walk(own)...)
}

// begin opens the first round.
func (t *Trainer) begin() []machine.Effect {
	var effects []machine.Effect
	if t.incarnation > 0 {
		effects = append(effects, machine.Announce{PeerIs: machine.PeerIs{Peer: plan.Trainer, Incarnation: t.incarnation, Round: t.first}})
	}
	return t.open(effects, t.first)
}

func (t *Trainer) start(a plan.ActorID, r plan.Round) machine.Effect {
	return machine.Send{Message: &machine.Message{Name: machine.Name{
		Job: t.job, Round: r, Incarnation: t.incarnation, From: plan.Trainer, To: a, Value: plan.Value{Kind: plan.Start, Piece: -1},
	}}}
}

// restarted leads a new life into the round that is open, if that can still wait for it, else into the next.
func (t *Trainer) restarted(e machine.Restarted) []machine.Effect {
	if l, ok := t.lives[e.Actor]; e.Incarnation == 0 || ok && e.Incarnation <= l.Incarnation {
		return nil
	}
	t.lives[e.Actor] = machine.PeerIs{Peer: e.Actor, Incarnation: e.Incarnation}
	r := t.walker.Round()
	if !t.begun || !t.walker.Forget(e.Actor) {
		t.late[e.Actor] = true
		return nil
	}
	delete(t.late, e.Actor)
	var effects []machine.Effect
	for _, a := range t.plan.Actors {
		// The new life must not take messages of an old one of somebody else either.
		if l, ok := t.lives[a.ID]; ok && a.ID != e.Actor && !t.late[a.ID] {
			effects = append(effects, machine.Announce{PeerIs: l})
		}
	}
	effects = append(effects, t.announce(e.Actor, r)...)
	return t.lead(effects, e.Actor, r)
}

// announce tells everybody of an actor's new life, and the trainer's own walker.
func (t *Trainer) announce(a plan.ActorID, r plan.Round) []machine.Effect {
	l := t.lives[a]
	l.Round = r
	t.lives[a] = l
	return append([]machine.Effect{machine.Announce{PeerIs: l}}, t.walker.Handle(l)...)
}

// lead sends a new life through Recover into a round. In Init there is no state to get back.
func (t *Trainer) lead(effects []machine.Effect, a plan.ActorID, r plan.Round) []machine.Effect {
	if r.Phase != plan.InitPhase {
		effects = append(effects, t.start(a, plan.Round{Step: r.Step, Phase: plan.RecoverPhase}))
	}
	return append(effects, t.start(a, r))
}

func (t *Trainer) stop(effects []machine.Effect, err error) []machine.Effect {
	t.stopped = true
	return append(effects, machine.Stop{Err: err})
}

// Failure is the error of a run that an actor could not go on with, or a node, where Actor is empty.
type Failure struct {
	Actor plan.ActorID
	Node  string
	Round plan.Round
	Op    string
	Cause error
}

func (f *Failure) Error() string {
	where := f.Node
	switch {
	case f.Node == "":
		where = string(f.Actor)
	case f.Actor != "":
		where = string(f.Actor) + " on " + f.Node
	}
	at := f.Round.String()
	if f.Op != "" {
		at += ", " + f.Op
	}
	return fmt.Sprintf("%s failed in %s: %v", where, at, f.Cause)
}

func (f *Failure) Unwrap() error { return f.Cause }
