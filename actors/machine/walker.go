package machine

import (
	"fmt"

	"github.com/troupe-train/troupe/plan"
)

// Walker is the machine that walks programs: it is a stage, a shard, and a part of the trainer.
//
// Operations start in the order of the program. A Receive never waits; any other operation starts
// when all that it reads is there, and holds back those after it until then. Two liberties keep the
// stream from running dry, and neither changes a value:
//   - up to Window operations are on the stream at once. One that reads a value with a payload
//     is launched when that value is complete; one that reads a resident value, when the operation
//     that writes it has been launched, because the stream runs them in order.
//   - a Send whose value is still being made on the stream is put off, and what follows goes on.
//     Its value comes without anybody else's doing, so nothing can wait for it in a circle.
//
// Messages of a later round are kept until it opens: at most one round, and of it what the program
// of that round receives. A payload that was sent is kept in the outbox until the commit, and sent again
// to a peer that begins a new life in the round.
//
// A walker that begins a new life itself, with an Incarnation above 0, walks Recover first, and then the
// round that is open, from its beginning.
type Walker struct {
	id          plan.ActorID
	plan        *plan.Plan
	incarnation int
	window      int
	// paths are those by the shares of the plan; dealt is the newest one by other shares.
	paths [plan.Phases]*path
	dealt struct {
		round plan.Round
		path  *path
	}

	// Invariant: early and recovery, if any, are of later rounds than now; now is nil before the first
	// round. recovery is of a Recover, early of another phase.
	now, early, recovery *walk
	// old is the walk before now: effects may still point into it. spare are older ones, to be walked again.
	old   *walk
	spare [plan.Phases]*walk
	// pending is the round of a Start that came before the round that is open had finished.
	pending *plan.Round
	// target is the round that this actor's new life is to catch up with, as far as it is known.
	target plan.Round
	// outbox has what was sent in this round, and what is offered.
	outbox []*post
	// peers are the highest incarnations known; lives the newest of those that were announced.
	peers   map[plan.ActorID]int
	lives   map[plan.ActorID]PeerIs
	stopped bool
	counts  Counts

	effects []Effect
}

// Counts are what a Walker counts since it was made.
type Counts struct {
	// Duplicates were received before; Stale belong to a round before the one that is open.
	Duplicates, Stale, Refused int
}

// Option changes a Walker.
type Option func(*Walker)

// Incarnation sets the number of the actor's life. The first is 0.
func Incarnation(n int) Option { return func(w *Walker) { w.incarnation = n } }

// Window sets how many operations may be on the stream at once. It is 4 unless set, and at least 1.
func Window(n int) Option { return func(w *Walker) { w.window = max(n, 1) } }

// NewWalker returns the machine that walks the programs that a plan has for an actor.
func NewWalker(p *plan.Plan, id plan.ActorID, options ...Option) *Walker {
	w := &Walker{
		id:     id,
		plan:   p,
		window: 4,
		peers:  map[plan.ActorID]int{},
		lives:  map[plan.ActorID]PeerIs{},
	}
	for _, o := range options {
		o(w)
	}
	return w
}

// ID is the actor that it is.
func (w *Walker) ID() plan.ActorID { return w.id }

// Counts are what has been counted so far.
func (w *Walker) Counts() Counts { return w.counts }

// Round is the round that was opened last; the zero Round before the first.
func (w *Walker) Round() plan.Round {
	if w.now == nil {
		return plan.Round{}
	}
	return w.now.round
}

// Finished reports whether the program of Round has come to its end.
func (w *Walker) Finished() bool { return w.now != nil && w.now.finished() }

// Handle is one step of the machine.
func (w *Walker) Handle(e Event) []Effect {
	if w.stopped {
		return Discard(e)
	}
	switch e := e.(type) {
	case Arrived:
		w.arrived(e.Message)
	case Completed:
		w.completed(e)
	case PeerIs:
		w.peerIs(e)
	}
	w.openPending()
	out := w.effects
	w.effects = w.effects[:0]
	return out
}

// Open commits all rounds before r and begins r. A Start message does the same; the trainer, who
// sends those, opens its own rounds. It panics when the round that is open has not finished, or r
// does not come after it.
func (w *Walker) Open(r plan.Round) []Effect {
	if reason := w.whyNotOpen(r); reason != "" {
		panic(fmt.Sprintf("machine: %s cannot open %s: %s", w.id, r, reason))
	}
	return w.apart(func() { w.open(r) })
}

// Close ends the machine: it gives back all that it holds, and handles nothing more.
func (w *Walker) Close() []Effect {
	w.stopped = true
	return w.apart(func() {
		w.commit()
		w.abandon(w.now)
		w.abandon(w.early)
		w.abandon(w.recovery)
	})
}

// Waiting describes what the machine waits for now.
func (w *Walker) Waiting() Wait {
	if w.now == nil {
		if w.incarnation == 0 {
			return Wait{}
		}
		r := w.target
		if w.pending != nil {
			r = *w.pending
		}
		return Wait{Round: r, Op: "the beginning of its new life", Value: startValue, From: plan.Trainer}
	}
	n := w.now
	wait := Wait{Round: n.round}
	switch {
	case len(n.launched) > 0:
		wait.Op, wait.Running = n.path.ops[n.launched[0]].String(), true
	case n.head < len(n.path.ops):
		wait.Op = n.path.ops[n.head].String()
		if s, ok := n.lacks(n.head); ok {
			wait.Value, wait.From = n.path.values[s], n.path.from[s]
		}
	}
	return wait
}

// apart returns the effects of f in memory of their own: those of the last Handle, which they may stand
// behind, are not written over.
func (w *Walker) apart(f func()) []Effect {
	keep := w.effects
	w.effects = nil
	f()
	out := w.effects
	w.effects = keep
	return out
}

func (w *Walker) emit(e Effect) { w.effects = append(w.effects, e) }

func (w *Walker) drop(p Payload) {
	if p != nil {
		w.emit(Drop{p})
	}
}

// dropAgain is drop for a place whose payloads come again: the last few Drops are known there.
func (w *Walker) dropAgain(known *[]Effect, p Payload) {
	t, ok := p.(Tensor)
	if !ok {
		w.drop(p)
		return
	}
	for _, e := range *known {
		if e.(Drop).Payload.(Tensor) == t {
			w.emit(e)
			return
		}
	}
	if len(*known) == knownLimit {
		*known = (*known)[:0]
	}
	e := Effect(Drop{p})
	*known = append(*known, e)
	w.emit(e)
}

// path returns the path of a round, or says why the actor has none there. Those by other shares than the plan's are
// kept with the walks on them, of which there are few, and the newest besides.
func (w *Walker) path(r plan.Round) (*path, string) {
	switch {
	case r.Phase >= plan.Phases:
	case r.Shares == "":
		if p := w.paths[r.Phase]; p != nil {
			return p, ""
		}
	default:
		for _, k := range [...]*walk{w.now, w.early, w.spare[r.Phase]} {
			if k != nil && k.round.Phase == r.Phase && k.round.Shares == r.Shares {
				return k.path, ""
			}
		}
		if w.dealt.round.Phase == r.Phase && w.dealt.round.Shares == r.Shares {
			return w.dealt.path, ""
		}
	}
	program, err := w.plan.ProgramIn(w.id, r)
	switch {
	case err != nil:
		return nil, err.Error()
	case program == nil:
		return nil, fmt.Sprintf("%s has no program for this round", w.id)
	}
	p := newPath(program)
	if r.Shares == "" {
		w.paths[r.Phase] = p
	} else {
		w.dealt.round, w.dealt.path = r, p
	}
	return p, ""
}

func (w *Walker) whyNotOpen(r plan.Round) string {
	_, reason := w.path(r)
	switch {
	case reason != "":
		return reason
	case w.now == nil:
		return ""
	case !w.now.finished():
		return fmt.Sprintf("%s has not finished", w.now.round)
	case !w.now.round.Before(r):
		return fmt.Sprintf("%s has been opened before", w.now.round)
	}
	return ""
}

func (w *Walker) open(r plan.Round) {
	w.commit()
	w.abandon(w.now)
	if w.old != nil {
		w.spare[w.old.round.Phase] = w.old
	}
	w.old, w.now = w.now, nil
	for _, early := range []**walk{&w.early, &w.recovery} {
		switch k := *early; {
		case k == nil || r.Before(k.round):
			continue
		case k.round == r:
			w.now = k
		default:
			w.abandon(k)
		}
		*early = nil
	}
	if w.now == nil {
		p, _ := w.path(r)
		w.now = w.walk(r, p)
	}
	w.emit(Committed{r})
	w.advance()
}

// walk begins a round, where one on its path was walked before.
func (w *Walker) walk(r plan.Round, p *path) *walk {
	k := w.spare[r.Phase]
	if k == nil || k.path != p {
		return newWalk(r, p)
	}
	w.spare[r.Phase] = nil
	k.begin(r)
	return k
}

// abandon gives back the values that a program left when it ended.
func (w *Walker) abandon(k *walk) {
	if k == nil {
		return
	}
	for i := range k.slots {
		if k.slots[i].state == there {
			w.dropAgain(&k.drops[i], k.slots[i].payload)
		}
		k.slots[i] = slot{state: gone}
	}
}

// settle puts a value in its slot, does the sends that were put off for it, and lets it go when
// nothing else reads it.
func (w *Walker) settle(s int32, p Payload) {
	n := w.now
	n.slots[s].state, n.slots[s].payload = there, p
	if len(n.deferred) > 0 {
		rest := n.deferred[:0]
		for _, i := range n.deferred {
			if n.path.reads[i][0] == s {
				w.post(i)
			} else {
				rest = append(rest, i)
			}
		}
		n.deferred = rest
	}
	if n.slots[s].dead {
		w.free(s)
	}
}

// free ends a value: now, or when it is there.
func (w *Walker) free(s int32) {
	x := &w.now.slots[s]
	x.dead = true
	if x.state == there {
		w.dropAgain(&w.now.drops[s], x.payload)
		x.state, x.payload = gone, nil
	}
}

// advance starts operations until one has to wait.
func (w *Walker) advance() {
	n := w.now
	for ; n.head < len(n.path.ops); n.head++ {
		i := n.head
		op := &n.path.ops[i]
		switch op.Kind {
		case plan.Receive:
		case plan.Send, plan.Offer:
			if len(op.Reads) == 0 {
				w.offerLater(i)
				break
			}
			switch n.slots[n.path.reads[i][0]].state {
			case there:
				w.post(i)
			case running:
				n.deferred = append(n.deferred, i)
			default:
				return
			}
		default:
			if len(n.launched) >= w.window {
				return
			}
			if _, lacks := n.lacks(i); lacks {
				return
			}
			w.launch(i)
		}
		for _, s := range n.path.frees[i] {
			// A value whose send was put off goes after that send; see settle.
			w.free(s)
		}
	}
}

func (w *Walker) launch(i int) {
	n := w.now
	run := &n.runs[i]
	for j, s := range n.path.reads[i] {
		run.In[j] = n.slots[s].payload
	}
	for _, s := range n.path.writes[i] {
		n.slots[s].state = running
	}
	n.launched = append(n.launched, i)
	run.Round = n.round
	w.emit(Launch{run})
}

func (w *Walker) completed(e Completed) {
	n := w.now
	if n == nil || e.Round != n.round || len(n.launched) == 0 || n.launched[0] != e.Op {
		panic(fmt.Sprintf("machine: %s is told that operation %d of %s is complete, which is not the oldest on its stream", w.id, e.Op, e.Round))
	}
	op := &n.path.ops[e.Op]
	n.launched = n.launched[:copy(n.launched, n.launched[1:])]
	delete(n.offering, e.Op)
	if e.Err == nil && len(e.Out) != len(op.Writes) {
		e.Err = fmt.Errorf("it returned %d values and writes %d", len(e.Out), len(op.Writes))
	}
	if e.Err != nil {
		for _, p := range e.Out {
			w.drop(p)
		}
		w.stopped = true
		w.emit(Fail{Round: n.round, Op: op.String(), Cause: e.Err})
		return
	}
	if op.Kind == plan.Offer {
		w.offered(e.Op, e.Out[0])
	} else {
		for j, s := range n.path.writes[e.Op] {
			w.settle(s, e.Out[j])
		}
	}
	w.advance()
}
