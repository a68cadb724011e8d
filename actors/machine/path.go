package machine

import (
	"fmt"

	"github.com/troupe-train/troupe/plan"
)

// path is a program made ready for walking: every value has a slot, and operations name slots.
// A path is immutable.
type path struct {
	ops    []plan.Op
	values []plan.Value
	// reads, writes and frees are slots, for each operation.
	reads, writes, frees [][]int32
	// from is the actor that owes the value of a slot; empty for a value that the actor makes itself.
	from []plan.ActorID
	slot map[plan.Value]int32
	// post numbers the operations that put a message into the outbox, of which there are posts.
	post  []int32
	posts int
}

// newPath panics on a program that reads or frees what nothing writes, or writes a value twice:
// the checker of plan refuses such a program, so here it is a broken invariant.
func newPath(p *plan.Program) *path {
	n := 0
	for i := range p.Ops {
		n += len(p.Ops[i].Writes)
	}
	t := &path{
		ops:    p.Ops,
		values: make([]plan.Value, 0, n),
		from:   make([]plan.ActorID, 0, n),
		reads:  make([][]int32, len(p.Ops)),
		writes: make([][]int32, len(p.Ops)),
		frees:  make([][]int32, len(p.Ops)),
		slot:   make(map[plan.Value]int32, n),
		post:   make([]int32, len(p.Ops)),
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		t.reads[i] = t.slots(p, op, "reads", op.Reads)
		if op.Kind == plan.Send || op.Kind == plan.Offer {
			t.post[i] = int32(t.posts)
			t.posts++
		}
		for _, v := range op.Writes {
			if _, ok := t.slot[v]; ok {
				panic(fmt.Sprintf("machine: %s program of %s: %s writes %s a second time", p.Phase, p.Actor, op, v))
			}
			s := int32(len(t.values))
			t.slot[v] = s
			t.writes[i] = append(t.writes[i], s)
			t.values = append(t.values, v)
			if op.Kind == plan.Receive {
				t.from = append(t.from, op.Peer)
			} else {
				t.from = append(t.from, "")
			}
		}
		t.frees[i] = t.slots(p, op, "frees", op.Frees)
		if op.Kind == plan.Offer && len(op.Reads)+len(op.Writes) != 1 {
			panic(fmt.Sprintf("machine: %s program of %s: %s reads %d values and writes %d", p.Phase, p.Actor, op, len(op.Reads), len(op.Writes)))
		}
		if op.Kind == plan.Send && len(op.Reads) != 1 {
			panic(fmt.Sprintf("machine: %s program of %s: %s reads %d values", p.Phase, p.Actor, op, len(op.Reads)))
		}
		if op.Kind == plan.Receive && len(op.Writes) != 1 {
			panic(fmt.Sprintf("machine: %s program of %s: a receive from %s writes %d values", p.Phase, p.Actor, op.Peer, len(op.Writes)))
		}
	}
	return t
}

func (t *path) slots(p *plan.Program, op *plan.Op, verb string, values []plan.Value) []int32 {
	if len(values) == 0 {
		return nil
	}
	out := make([]int32, len(values))
	for i, v := range values {
		s, ok := t.slot[v]
		if !ok {
			panic(fmt.Sprintf("machine: %s program of %s: %s %s %s, which nothing before it writes", p.Phase, p.Actor, op, verb, v))
		}
		out[i] = s
	}
	return out
}

// state is what is known of a value.
type state uint8

const (
	absent  state = iota // not received, or not begun
	running              // an operation on the stream makes it
	there
	gone // there, and no longer needed
)

// slot is a value in a round. dead says that nothing later reads it: it goes as soon as it is
// there and the sends that wait for it are done.
type slot struct {
	state   state
	dead    bool
	payload Payload
	// sum and incarnation are those of the message that was taken.
	sum         uint32
	incarnation int
}

// walk is a round on a path. Before the round opens, only received values are in its slots.
//
// Invariants: operations before head have been launched, sent or put off; those in launched are
// on the stream, in order; a send in deferred reads a value that one of launched writes. The
// Offers in offers are before head and have not been made; those in offering are among launched.
type walk struct {
	round    plan.Round
	path     *path
	slots    []slot
	head     int
	launched []int
	deferred []int
	offers   []int
	offering map[int]bool

	// What effects point at, and payloads and effects that come again in a round like the one before, so
	// that it takes nothing from the heap: runs are by operation, drops by slot.
	runs  []Run
	posts []post
	drops [][]Effect
}

// post is a message in the outbox, the views that it had as payloads, and its Drops.
type post struct {
	Message
	views []Payload
	drops []Effect
}

func newWalk(r plan.Round, p *path) *walk {
	w := &walk{
		path: p, slots: make([]slot, len(p.values)), drops: make([][]Effect, len(p.values)),
		runs: make([]Run, len(p.ops)), posts: make([]post, p.posts),
	}
	n := 0
	for i := range p.ops {
		n += len(p.reads[i])
	}
	in := make([]Payload, n)
	for i := range p.ops {
		n := len(p.reads[i])
		w.runs[i] = Run{Index: i, Op: &p.ops[i], In: in[:n:n]}
		in = in[n:]
	}
	w.begin(r)
	return w
}

// begin makes a walk of a round of what was a walk of the same phase.
func (w *walk) begin(r plan.Round) {
	w.round, w.head = r, 0
	clear(w.slots)
	w.launched, w.deferred, w.offers = w.launched[:0], w.deferred[:0], w.offers[:0]
	clear(w.offering)
}

func (w *walk) finished() bool { return w.ended() && len(w.launched) == 0 }

// ended says that all of the program is done, though an Offer may be on the stream.
func (w *walk) ended() bool {
	return w.head == len(w.path.ops) && len(w.launched) == len(w.offering) && len(w.deferred) == 0
}

// lacks returns the first value that operation i reads and that keeps it from starting.
func (w *walk) lacks(i int) (int32, bool) {
	for _, s := range w.path.reads[i] {
		switch w.slots[s].state {
		case there:
		case running:
			if !Resident(w.path.values[s]) {
				return s, true
			}
		default:
			return s, true
		}
	}
	return 0, false
}

// Resident reports whether a value stays inside the executor. It has no payload, so an operation
// that reads it may be queued on the stream behind the one that writes it.
func Resident(v plan.Value) bool {
	switch v.Kind {
	case plan.Saved, plan.Stashed:
		return true
	case plan.Parameters:
		return v.Piece < 0
	}
	return false
}
