package machine

import (
	"fmt"

	"github.com/troupe-train/troupe/plan"
)

// viewer is a payload of which a part can be sent.
type viewer interface{ View(lo, n int) Payload }

// post does a Send or an Offer whose value is there: the message goes into the outbox, and a Send's to its peer.
func (w *Walker) post(i int) {
	n := w.now
	op := &n.path.ops[i]
	m := w.put(i, n.slots[n.path.reads[i][0]].payload)
	if part, whole := w.plan.Part(op); !whole {
		// A shard is sent its piece of the vector: a view, no copy.
		if t, ok := m.Payload.(Tensor); ok {
			m.Payload = again(&m.views, t.Sub(part.Lo, part.Len()))
		} else {
			m.Payload = m.Payload.(viewer).View(part.Lo, part.Len())
		}
	}
	if m.Payload != nil {
		m.Payload.Retain()
	}
	if op.Kind == plan.Send || w.wanted(op.Peer) {
		w.emit(Send{&m.Message})
	}
}

// put puts the message of an operation into the outbox.
func (w *Walker) put(i int, p Payload) *post {
	m := &w.now.posts[w.now.path.post[i]]
	m.Message = Message{Name: w.name(&w.now.path.ops[i]), Payload: p}
	w.outbox = append(w.outbox, m)
	return m
}

// name is that of the message of a Send or Offer. What is offered belongs to the Recover of the step.
func (w *Walker) name(op *plan.Op) Name {
	r := w.now.round
	if op.Kind == plan.Offer {
		r.Phase, r.Shares = plan.RecoverPhase, ""
	}
	return Name{Job: w.plan.Job.Name, Round: r, Incarnation: w.incarnation, From: w.id, To: op.Peer, Value: op.As}
}

// wanted reports whether a peer has begun a new life in the round that is open.
func (w *Walker) wanted(peer plan.ActorID) bool {
	l, ok := w.lives[peer]
	return ok && l.Round == w.now.round
}

// offerLater passes an Offer whose value is made when somebody needs it.
func (w *Walker) offerLater(i int) {
	if w.wanted(w.now.path.ops[i].Peer) {
		w.makeOffer(i)
		return
	}
	w.now.offers = append(w.now.offers, i)
}

// makeOffer runs an Offer, out of the order of the program: it is on the stream behind all that was launched.
func (w *Walker) makeOffer(i int) {
	n := w.now
	if n.offering == nil {
		n.offering = map[int]bool{}
	}
	n.offering[i] = true
	n.launched = append(n.launched, i)
	n.runs[i].Round = n.round
	w.emit(Launch{&n.runs[i]})
}

// offered sends what an Offer has made.
func (w *Walker) offered(i int, p Payload) {
	w.emit(Send{&w.put(i, p).Message})
}

// peerIs takes note of a peer's life. One that begins in the round that is open is sent again all that it was sent.
func (w *Walker) peerIs(e PeerIs) {
	if e.Peer == w.id {
		w.self(e)
		return
	}
	w.peers[e.Peer] = max(w.peers[e.Peer], e.Incarnation)
	l, known := w.lives[e.Peer]
	if e.Incarnation == 0 || known && (e.Incarnation < l.Incarnation || e.Incarnation == l.Incarnation && !l.Round.Before(e.Round)) {
		return
	}
	w.lives[e.Peer] = e
	if w.now == nil || w.now.round != e.Round {
		return
	}
	for _, m := range w.outbox {
		if m.Name.To == e.Peer {
			w.emit(Send{&m.Message})
		}
	}
	rest := w.now.offers[:0]
	for _, i := range w.now.offers {
		if w.now.path.ops[i].Peer == e.Peer {
			w.makeOffer(i)
		} else {
			rest = append(rest, i)
		}
	}
	w.now.offers = rest
}

// self is told which round its life is to catch up with, or that it is over.
func (w *Walker) self(e PeerIs) {
	switch {
	case e.Incarnation == w.incarnation && w.target.Before(e.Round):
		w.target = e.Round
	case e.Incarnation > w.incarnation:
		w.stopped = true
		wait := w.Waiting()
		w.emit(Fail{Round: wait.Round, Op: wait.Op, Cause: fmt.Errorf("%w: %s lives its incarnation %d", ErrFenced, w.id, e.Incarnation)})
	}
}

// commit trims the outbox.
func (w *Walker) commit() {
	for _, m := range w.outbox {
		w.dropAgain(&m.drops, m.Payload)
	}
	w.outbox = w.outbox[:0]
}

// Forget takes back the report of an actor that begins a new life, so that the round cannot end
// before that life has caught up. It reports false when it is too late: the end of the round has begun. The
// trainer needs it.
func (w *Walker) Forget(a plan.ActorID) bool {
	n := w.now
	if n == nil {
		return true
	}
	last := len(n.path.ops) - 1
	if n.head > last {
		return false
	}
	for _, s := range n.path.reads[last] {
		if n.path.from[s] == a && n.path.values[s].Kind == plan.Report && n.slots[s].state == there {
			w.drop(n.slots[s].payload)
			n.slots[s] = slot{}
		}
	}
	return true
}
