package machine

import (
	"fmt"

	"github.com/troupe-train/troupe/plan"
)

// arrived takes the payload of a message, or gives it back; a refusal has a reason.
func (w *Walker) arrived(m Message) {
	taken, reason := w.admit(m)
	if reason != "" {
		w.counts.Refused++
		w.emit(Refused{Name: m.Name, Reason: reason})
	}
	if !taken {
		w.drop(m.Payload)
	}
}

// startValue is what a Start carries.
var startValue = plan.Value{Kind: plan.Start, Piece: -1}

// admit neither takes a message nor has a reason against it when it is a copy of one that was
// taken, or of a round that has passed.
func (w *Walker) admit(m Message) (taken bool, reason string) {
	name := m.Name
	switch {
	case name.Job != w.plan.Job.Name:
		return false, fmt.Sprintf("it is of job %q, and %s of job %q", name.Job, w.id, w.plan.Job.Name)
	case name.To != w.id:
		return false, fmt.Sprintf("it is not for %s", w.id)
	case name.Incarnation < w.peers[name.From]:
		return false, fmt.Sprintf("%s lives its incarnation %d", name.From, w.peers[name.From])
	case w.stale(name.Round):
		w.counts.Stale++
		return false, ""
	case name.Value.Kind == plan.Start:
		return false, w.start(name)
	}
	p, reason := w.path(name.Round)
	if reason != "" {
		return false, reason
	}
	s, ok := p.slot[name.Value]
	switch {
	case !ok || p.from[s] == "":
		return false, fmt.Sprintf("the program of %s does not receive it", w.id)
	case p.from[s] != name.From:
		return false, fmt.Sprintf("%s is to send it", p.from[s])
	case m.Payload == nil:
		return false, "it has no payload"
	}
	k, reason := w.walkOf(name.Round, p)
	if reason != "" {
		return false, reason
	}
	w.peers[name.From] = name.Incarnation
	if x := &k.slots[s]; x.state != absent {
		w.counts.Duplicates++
		w.compare(m, x)
		return false, ""
	}
	k.slots[s].sum, k.slots[s].incarnation = m.Sum, name.Incarnation
	if k == w.now {
		w.settle(s, m.Payload)
		w.advance()
	} else {
		k.slots[s].state, k.slots[s].payload = there, m.Payload
	}
	return true, ""
}

// stale says that a message of round r comes too late: nothing here will read it.
func (w *Walker) stale(r plan.Round) bool {
	if w.now != nil && r.Before(w.now.round) {
		return true
	}
	if !w.recovering() {
		return false
	}
	if r.Phase == plan.RecoverPhase {
		return r.Step < w.target.Step
	}
	// Nobody sends in a round before all have reported in those before it, but for this actor, whose
	// life before this one did: so what is there of a later round makes earlier ones history.
	return r.Before(w.target) || w.early != nil && r.Before(w.early.round)
}

// recovering says that the round that is to be caught up with has not been opened yet in this life.
func (w *Walker) recovering() bool {
	return w.now == nil || w.now.round.Phase == plan.RecoverPhase
}

// compare looks at a copy of a message that was taken. The same work in two lives gives the same
// bits, so this is a test for silent corruption that costs nothing. Reports tell of time, and differ.
func (w *Walker) compare(m Message, x *slot) {
	if m.Sum == x.sum || m.Sum == 0 || x.sum == 0 || m.Name.Value.Kind == plan.Report {
		return
	}
	w.stopped = true
	w.emit(Fail{Round: m.Name.Round, Op: fmt.Sprintf("receive %s from %s", m.Name.Value, m.Name.From), Cause: &Corruption{
		Name: m.Name, Sum: m.Sum, Before: x.incarnation, SumBefore: x.sum,
	}})
}

// walkOf is the walk of the round that is open, or of a later one that messages come early for.
// Besides a Recover there is at most one of those: no peer can be two rounds ahead, because a round opens
// only when every actor has reported the one before; or this life of the actor has not begun yet.
func (w *Walker) walkOf(r plan.Round, p *path) (*walk, string) {
	if w.now != nil && w.now.round == r {
		return w.now, ""
	}
	if w.now != nil && w.now.round.Bare() == r.Bare() {
		return nil, fmt.Sprintf("it is by the shares %s, and %s is run by %s", orPlan(r.Shares), w.now.round, orPlan(w.now.round.Shares))
	}
	early := &w.early
	if r.Phase == plan.RecoverPhase {
		early = &w.recovery
	}
	if k := *early; k != nil && k.round.Before(r) && w.recovering() {
		w.abandon(k)
		*early = nil
	}
	if *early == nil {
		*early = w.walk(r, p)
	}
	if (*early).round != r {
		return nil, fmt.Sprintf("messages of %s came early before it, and no more than one round is kept", (*early).round)
	}
	return *early, ""
}

func orPlan(s plan.Shares) string {
	if s == "" {
		return "of the plan"
	}
	return string(s)
}

// start opens the round of a Start message, now or when it can, unless there is a reason against it.
func (w *Walker) start(name Name) string {
	if name.From != plan.Trainer {
		return fmt.Sprintf("rounds are opened by the %s", plan.Trainer)
	}
	r := name.Round
	if _, reason := w.path(r); reason != "" {
		return reason
	}
	// It comes from a new life of the trainer before its PeerIs, now and then. What this actor has sent in the round is sent
	// again at the PeerIs and not now: who carries messages knows only then where the new life is.
	w.peers[plan.Trainer] = max(w.peers[plan.Trainer], name.Incarnation)
	switch {
	case w.now != nil && (w.now.round == r || r.Phase == plan.RecoverPhase), w.pending != nil && *w.pending == r:
		// A Recover is the beginning of a life, and of no other.
		w.counts.Duplicates++
	case w.mustWait(r):
		if w.pending == nil || w.pending.Before(r) {
			later := r
			w.pending = &later
		}
	default:
		reason := w.whyNotOpen(r)
		if reason == "" {
			w.open(r)
		}
		return reason
	}
	return ""
}

// mustWait says that a Start has come before what it follows has happened: in a new life the Recover comes
// first; and while a peer recovers, an Offer may be on the stream although the program has ended.
func (w *Walker) mustWait(r plan.Round) bool {
	if w.now == nil {
		return w.incarnation > 0 && r.Phase != plan.InitPhase && r.Phase != plan.RecoverPhase
	}
	return w.now.round.Before(r) && !w.now.finished() && (w.now.round.Phase == plan.RecoverPhase || w.now.ended())
}

func (w *Walker) openPending() {
	for w.pending != nil && !w.stopped && w.now != nil && w.now.finished() {
		r := *w.pending
		w.pending = nil
		if w.now.round.Before(r) {
			w.open(r)
		}
	}
}
