package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

// Limits bound what Recovery does before it gives up.
type Limits struct {
	// Restarts of one actor within Window. Backoff is the pause before the second; it doubles with every further one.
	Restarts        int
	Window, Backoff time.Duration
	// Resumes in a row that did not get further than the one before.
	Resumes int
	// Resumable says that there is a place for checkpoints to go back to.
	Resumable bool
	// Join is how long actors wait for a node when none is left.
	Join time.Duration
}

// LimitsOf are those of a job.
func LimitsOf(j *plan.Job) Limits {
	s := j.Supervisor
	return Limits{
		Restarts: s.Restarts, Window: seconds(s.Window), Backoff: seconds(s.Backoff),
		Resumes: s.Resumes, Resumable: j.Save.Dir != "", Join: seconds(s.Join),
	}
}

// sameFailures is how often an actor may fail with the same words in the same round before a restart is held to be of no use.
const sameFailures = 3

// silentCorruption is how the cause of a *machine.Corruption begins.
const silentCorruption = "silent corruption"

// Recovery decides on failures: a machine without clock or effect. The escalation is actor (restarted in place,
// then on another node), node (all its actors move), job (resumed from a checkpoint), stop.
//
// Invariants: an actor has at most one life that is not fenced; incarnations only grow; what a failed life
// says is ignored; an actor is restarted only if the state that it needs is held, or can be had, by
// another actor that lives.
type Recovery struct {
	limits Limits
	now    time.Time
	nodes  map[int]*host
	lives  []*life // in the order of the plan
	byID   map[plan.ActorID]*life

	planned   []*life // are to move when nobody is down, in order
	committed int64
	phase     plan.Phase // of the round that is open
	// resumes since a step was committed beyond mark.
	resumes int
	mark    int64
	over    bool // Resume or GiveUp was decided; Begin starts afresh
}

type host struct {
	alive    bool
	failures []time.Time // of actors on it, within the window
	avoid    time.Time   // until then it gets actors only if no other node is there
}

// life is what Recovery knows of an actor.
type life struct {
	Seat
	incarnation int
	home        int // node of the plan for all nodes
	state       lifeState
	restored    bool        // while catching: it has its state
	failures    []time.Time // within the window; they outlast incarnations, moves and nodes
	last        string      // the words of the last failure, and how often they came in a row
	same        int
	due         time.Time // of a restart that waits
	reason      string
	failure     string    // what has brought it down, in words
	why         string    // of a planned move
	settled     time.Time // when it was last moved because it was slow
	fleeing     bool      // it is to move because it is slow
}

type lifeState uint8

const (
	living   lifeState = iota
	waiting            // failed; it restarts when due
	stranded           // failed; there is no node
	catching           // restarted, and not caught up yet
)

// Seat is an actor and what Recovery must know to place it.
type Seat struct {
	Actor plan.ActorID
	Node  int
	// Home is where the actor is to live when all nodes are there; 0 if that is Node.
	Home int
	// Bytes are those that it is predicted to need at its peak.
	Bytes int64
	// Sources are the actors that hold its state. Lost says that nobody does.
	Sources []plan.ActorID
	Lost    bool
}

// NewRecovery watches over seats on nodes, which are those that may hold actors.
func NewRecovery(l Limits, seats []Seat, nodes []int) *Recovery {
	r := &Recovery{limits: l}
	r.Begin(seats, nodes)
	return r
}

// Begin starts all lives afresh, after a Resume. How often the job was resumed is not forgotten.
func (r *Recovery) Begin(seats []Seat, nodes []int) {
	r.nodes, r.lives, r.byID = map[int]*host{}, nil, map[plan.ActorID]*life{}
	r.planned, r.over, r.phase = nil, false, plan.InitPhase
	for _, n := range nodes {
		r.nodes[n] = &host{alive: true}
	}
	for _, s := range seats {
		l := &life{Seat: s, home: s.Node}
		if s.Home > 0 {
			l.home = s.Home
		}
		r.lives = append(r.lives, l)
		r.byID[s.Actor] = l
	}
}

// Incarnation is the number of the life that an actor lives now.
func (r *Recovery) Incarnation(a plan.ActorID) int {
	if l := r.byID[a]; l != nil {
		return l.incarnation
	}
	return 0
}

// On are the actors on a node.
func (r *Recovery) On(node int) []plan.ActorID {
	var on []plan.ActorID
	for _, l := range r.lives {
		if l.Node == node {
			on = append(on, l.Actor)
		}
	}
	return on
}

// Down is the number of actors that have failed or were restarted and have not caught up.
func (r *Recovery) Down() int {
	n := 0
	for _, l := range r.lives {
		if l.state != living {
			n++
		}
	}
	return n
}

// Stranded is an actor that waits for a node. As one that is left would be its, no actor but the trainer lives then.
func (r *Recovery) Stranded() (a plan.ActorID, ok bool) {
	for _, l := range r.lives {
		if l.state == stranded {
			return l.Actor, true
		}
	}
	return "", false
}

// Next is when Handle is to be called at the latest.
func (r *Recovery) Next() (time.Time, bool) {
	var at time.Time
	for _, l := range r.lives {
		if (l.state == waiting || l.state == stranded) && (at.IsZero() || l.due.Before(at)) {
			at = l.due
		}
	}
	return at, !at.IsZero() && !r.over
}

// Handle takes in an event at a time that never goes back.
func (r *Recovery) Handle(now time.Time, e RecoveryEvent) []Decision {
	if now.After(r.now) {
		r.now = now
	}
	if o, ok := e.(Opened); ok {
		r.committed, r.phase = max(r.committed, o.Round.Step), o.Round.Phase
	}
	if r.over {
		return nil
	}
	var out []Decision
	switch e := e.(type) {
	case ActorFailed:
		out = r.failed(e.Failed)
	case NodeLost:
		out = r.nodeLost(e)
	case NodeJoined:
		out = r.nodeJoined(e.Node)
	case CaughtUp:
		if l := r.byID[e.Actor]; l != nil && l.incarnation == e.Incarnation && l.state == catching {
			l.state = living
		}
	case Restored:
		if l := r.byID[e.Actor]; l != nil && l.incarnation == e.Incarnation && l.state == catching {
			l.restored = true
		}
	case Opened:
		// A life that is held for lost may still have helped to end a round: what could be made anew in that one,
		// as in Init, may be lost in this one.
		if l, source := r.irrecoverable(); l != nil {
			out = r.orphaned(&machine.Failed{Actor: l.Actor, Incarnation: l.incarnation, Round: e.Round, Cause: l.reason}, l, source)
		}
	case Slow:
		out = r.slow(e)
	}
	if r.over {
		return out
	}
	// What needed no source in Init may need one now: a round has begun while actors were down.
	if l, source := r.irrecoverable(); l != nil {
		f := machine.Failed{Actor: l.Actor, Incarnation: l.incarnation, Round: plan.Round{Step: r.committed, Phase: r.phase}, Cause: l.reason}
		return append(out, r.orphaned(&f, l, source)...)
	}
	return append(out, r.due()...)
}

func (r *Recovery) failed(f machine.Failed) []Decision {
	l := r.byID[f.Actor]
	if l == nil {
		return r.escalate(&f, fmt.Sprintf("%s cannot go on, and no actor is to blame: %s", nameOr(f.Node, "the run"), f.Cause))
	}
	switch {
	case strings.HasPrefix(f.Cause, silentCorruption):
		return r.escalate(&f, fmt.Sprintf("two lives of an actor have sent %s different bits, and nobody knows which are right: %s", f.Actor, f.Cause))
	case f.Incarnation < l.incarnation:
		return []Decision{Noted{fmt.Sprintf("ignored a failure of %s, incarnation %d, which lives its incarnation %d: %s", f.Actor, f.Incarnation, l.incarnation, f.Cause)}}
	case l.state == waiting || l.state == stranded:
		return nil // of the life that is known to have failed
	}
	words := f.Round.String()
	if f.Op != "" {
		words += ", " + f.Op
	}
	words += ": " + f.Cause
	if words == l.last {
		l.same++
	} else {
		l.last, l.same = words, 1
	}
	r.down(l, true, fmt.Sprintf("it failed at %s", words))
	if l.same >= sameFailures && r.limits.Restarts > 0 {
		return r.escalate(&f, fmt.Sprintf("%s failed %d times in a row with the same words: %s", f.Actor, l.same, words))
	}
	if d := r.exhausted(&f, l); d != nil {
		return d
	}
	h := r.nodes[l.Node]
	if h == nil {
		return nil
	}
	h.failures = within(append(h.failures, r.now), r.now, r.limits.Window)
	if len(h.failures) > r.limits.Restarts && r.another(l.Node) {
		return r.evacuate(l.Node, &f)
	}
	return nil
}

// down notes that a life has ended, and when the next is to begin: after a pause that doubles from failure to
// failure where it is the actor's own, and at once where its node was lost. Both count in the budget.
func (r *Recovery) down(l *life, own bool, reason string) {
	l.failures = within(append(l.failures, r.now), r.now, r.limits.Window)
	l.state, l.due, l.reason, l.failure = waiting, r.now, reason, reason
	if own {
		l.failure = fmt.Sprintf("%s failed at %s", l.Actor, l.last)
	}
	if n := len(l.failures); own && n > 1 {
		pause := min(r.limits.Backoff<<min(n-2, 20), r.limits.Window)
		l.due = r.now.Add(pause)
		l.reason = fmt.Sprintf("%s; it is failure %d within %s, so after a pause of %s", reason, n, r.limits.Window, pause)
	}
}

// exhausted escalates when an actor has no restart left, or when what one that is down needs is lost.
func (r *Recovery) exhausted(f *machine.Failed, failed ...*life) []Decision {
	for _, l := range failed {
		if n := len(l.failures); n > r.limits.Restarts {
			return r.escalate(f, fmt.Sprintf("%s failed %s within %s, and supervisor.restarts is %d; %s", l.Actor, times(n), r.limits.Window, r.limits.Restarts, l.failure))
		}
	}
	if l, source := r.irrecoverable(); l != nil {
		return r.orphaned(f, l, source)
	}
	return nil
}

// orphaned escalates because the state of l, which is down, is lost. The failure that brought it down belongs to the reason.
func (r *Recovery) orphaned(f *machine.Failed, l *life, source string) []Decision {
	reason := fmt.Sprintf("nobody has the state of %s: %s", l.Actor, source)
	if l.failure != "" {
		reason += "; " + l.failure
	}
	return r.escalate(f, reason)
}

// irrecoverable finds an actor that is down and whose state cannot be had: a source must live, or be
// recoverable itself.
func (r *Recovery) irrecoverable() (*life, string) {
	if r.phase == plan.InitPhase {
		return nil, "" // whoever begins anew in Init gets its state as the first life did
	}
	has := func(l *life) bool { return l.state == living || l.state == catching && l.restored }
	ok := map[plan.ActorID]bool{}
	for changed := true; changed; {
		changed = false
		for _, l := range r.lives {
			if ok[l.Actor] || l.Lost && !has(l) {
				continue
			}
			if has(l) || !slices.ContainsFunc(l.Sources, func(s plan.ActorID) bool { return !ok[s] }) {
				ok[l.Actor], changed = true, true
			}
		}
	}
	for _, l := range r.lives {
		if ok[l.Actor] {
			continue
		}
		if l.Lost {
			return l, "the plan keeps no second copy of it"
		}
		return l, fmt.Sprintf("%v must have it, and they are down", l.Sources)
	}
	return nil, ""
}

// escalate goes back to a checkpoint, or gives up when that did not help either.
func (r *Recovery) escalate(f *machine.Failed, reason string) []Decision {
	r.over = true
	if r.committed > r.mark {
		r.resumes = 0
	}
	r.mark = max(r.mark, r.committed)
	failure := &Failure{Actor: f.Actor, Node: f.Node, Round: f.Round, Op: f.Op, Cause: errors.New(f.Cause)}
	giveUp := func(why string) []Decision {
		// The last line is the failure; why nothing more was tried belongs to it.
		return []Decision{GiveUp{Err: fmt.Errorf("%w; the run gives up: %s", failure, why), Reason: reason + "; " + why}}
	}
	switch {
	case !r.limits.Resumable:
		return giveUp("save.dir is empty, so there is no checkpoint to go back to")
	case r.limits.Resumes == 0:
		return giveUp("supervisor.resumes is 0, so the job does not go back to a checkpoint")
	case r.resumes >= r.limits.Resumes:
		return giveUp(fmt.Sprintf("the job has gone back to a checkpoint %s without getting beyond train step %d, and supervisor.resumes is %d", times(r.resumes), r.mark, r.limits.Resumes))
	}
	r.resumes++
	return []Decision{Resume{Older: r.resumes - 1, Reason: reason}}
}

// within drops the times that lie outside the window.
func within(times []time.Time, now time.Time, window time.Duration) []time.Time {
	return slices.DeleteFunc(times, func(t time.Time) bool { return now.Sub(t) >= window })
}
