package actors

import (
	"errors"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

// Faults does harm to the actors and messages of a node, to find out whether the run survives it. It is asked by
// many goroutines.
type Faults interface {
	// Op is asked when an actor is about to begin an operation: before it is launched, when a message has come
	// (Receive, with its value in Writes) and when one goes out (Send).
	Op(a plan.ActorID, r plan.Round, op *plan.Op) Harm
	// Message is asked of a message that is being sent.
	Message(n machine.Name) MessageHarm
	// Struck is told of the strikes that nodes are to see to, again and again. What concerns this node is done once.
	Struck(s Strikes)
}

// errAsked is the value of a panic that a fault asks for. Where it happens says nothing.
var errAsked = errors.New("a fault that was asked for")

// Harm does harm to an actor that lives on this node, whatever it does: it is killed at once, the rest befalls its next operation.
// It reports whether the actor lives here.
func (n *Node) Harm(a plan.ActorID, h Harm) bool {
	s := n.local(a)
	if s == nil || n.over(s) {
		return false
	}
	s.address.tell(h)
	return true
}

// Harm is what happens to an actor. The zero value is none.
type Harm struct {
	// Kill ends it without a word. Its node sees that it has ended.
	Kill bool
	// Panic makes the operation panic.
	Panic bool
	// Hang makes the operation wait that long before it begins; below 0 for ever.
	Hang time.Duration
	// Slow makes the operation take that many times as long; 0 stands for 1.
	Slow float64
}

// MessageHarm is what happens to a message. The zero value is none.
type MessageHarm struct {
	Drop, Duplicate bool
	// Corrupt flips a bit of what is sent over the wire. A message within a process does not go over one.
	Corrupt bool
	// Delay holds it back; what is sent later comes first.
	Delay time.Duration
}

// strike asks for the harm at a point. It kills at once; the rest is for the operation on the stream.
func (s *shell) strike(r plan.Round, op *plan.Op) Harm {
	f := s.node.options.Faults
	if f == nil || s.dead || s.closing {
		return Harm{}
	}
	h := f.Op(s.id, r, op).And(s.owed)
	s.owed = Harm{}
	if h.Kill {
		s.kill(r, op.String())
	}
	if op.Kind == plan.Send || op.Kind == plan.Receive {
		if h.Panic {
			panic(errAsked)
		}
		wait(s.retired, h.Hang)
	}
	return h
}

// harm is done to the actor wherever it is.
func (s *shell) harm(h Harm) {
	switch {
	case s.dead || s.closing:
	case h.Kill:
		w := s.actor.Machine.Waiting()
		s.kill(w.Round, w.Op)
	default:
		s.owed = s.owed.And(h)
	}
}

func (s *shell) kill(r plan.Round, op string) {
	s.dead, s.killed = true, true
	s.broken.Store(true)
	s.fail(machine.Fail{Round: r, Op: op, Cause: errKilled})
}

// And is both harms.
func (h Harm) And(o Harm) Harm {
	h.Kill, h.Panic, h.Slow = h.Kill || o.Kill, h.Panic || o.Panic, max(h.Slow, o.Slow)
	if h.Hang < 0 || o.Hang < 0 {
		h.Hang = -1
	} else {
		h.Hang += o.Hang
	}
	return h
}

func (h Harm) before(retired <-chan struct{}) {
	wait(retired, h.Hang)
	if h.Panic {
		panic(errAsked)
	}
}

func (h Harm) after(retired <-chan struct{}, took time.Duration) {
	if h.Slow > 1 {
		wait(retired, time.Duration(float64(took)*(h.Slow-1)))
	}
}

// wait lets time pass, or with d below 0 all of it, until the life is to end.
func wait(retired <-chan struct{}, d time.Duration) {
	switch {
	case d == 0:
		return
	case d < 0:
		<-retired
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-retired:
	}
}

// waylay does harm to a message. It reports whether the message is not to be sent now.
func (s *shell) waylay(m machine.Message) bool {
	f := s.node.options.Faults
	if f == nil {
		return false
	}
	h := f.Message(m.Name)
	if h.Corrupt {
		if at, _ := s.node.directory.get(m.Name.To); at.node != s.node.options.Index && s.node.transport != nil {
			s.node.transport.bend(m.Name)
		} else {
			s.node.log("fault: no bit of %s is bent: it does not go over a wire", m.Name)
		}
	}
	if h.Duplicate {
		s.later(m, 0)
	}
	if h.Delay > 0 {
		s.later(m, h.Delay)
	}
	return h.Drop || h.Delay > 0
}

// later sends a message from outside the actor. Where the actor's own send would fail, this one is lost.
func (s *shell) later(m machine.Message, d time.Duration) {
	if m.Payload != nil {
		m.Payload.Retain()
	}
	s.work.enter() // a node that closes waits for it
	time.AfterFunc(d, func() {
		defer s.work.leave()
		if m.Payload != nil {
			defer m.Payload.Release()
		}
		_ = s.node.post(m)
	})
}
