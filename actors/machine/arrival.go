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

// admit neither takes a message nor has a reason against it when it is a copy of one that was taken.
func (w *Walker) admit(m Message) (taken bool, reason string) {
	name := m.Name
	switch {
	case name.Job != w.plan.Job.Name:
		return false, fmt.Sprintf("it is of job %q, and %s of job %q", name.Job, w.id, w.plan.Job.Name)
	case name.To != w.id:
		return false, fmt.Sprintf("it is not for %s", w.id)
	case name.Incarnation < w.peers[name.From]:
		return false, fmt.Sprintf("%s lives its incarnation %d", name.From, w.peers[name.From])
	case w.now != nil && name.Round.Before(w.now.round):
		w.counts.Stale++
		return false, ""
	case name.Value.Kind == plan.Start:
		return false, w.start(name)
	}
	p := w.path(name.Round.Phase)
	if p == nil {
		return false, fmt.Sprintf("%s has no program for this round", w.id)
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
	if k.slots[s].state != absent {
		w.counts.Duplicates++
		return false, ""
	}
	if k == w.now {
		w.settle(s, m.Payload)
		w.advance()
	} else {
		k.slots[s] = slot{state: there, payload: m.Payload}
	}
	return true, ""
}

// walkOf is the walk of the round that is open, or of the later one that messages come early for.
// There is at most one of those: no peer can be two rounds ahead, because a round opens only when
// every actor has reported the one before.
func (w *Walker) walkOf(r plan.Round, p *path) (*walk, string) {
	if w.now != nil && w.now.round == r {
		return w.now, ""
	}
	if w.early == nil {
		w.early = newWalk(r, p)
	}
	if w.early.round != r {
		return nil, fmt.Sprintf("messages of %s came early before it, and no more than one round is kept", w.early.round)
	}
	return w.early, ""
}

// start opens the round of a Start message, unless there is a reason against it.
func (w *Walker) start(name Name) string {
	if name.From != plan.Trainer {
		return fmt.Sprintf("rounds are opened by the %s", plan.Trainer)
	}
	w.peers[name.From] = name.Incarnation
	if w.now != nil && w.now.round == name.Round {
		w.counts.Duplicates++
		return ""
	}
	reason := w.whyNotOpen(name.Round)
	if reason == "" {
		w.open(name.Round)
	}
	return reason
}
