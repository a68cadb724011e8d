package machine

import (
	"errors"
	"fmt"
	"time"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// Name is the name of a message. Two messages of one name carry the same bits.
type Name struct {
	Job   string
	Round plan.Round
	// Incarnation is that of the sender.
	Incarnation int
	From, To    plan.ActorID
	Value       plan.Value
}

func (n Name) String() string {
	return fmt.Sprintf("%s, %s, from %s (incarnation %d) to %s", n.Value, n.Round, n.From, n.Incarnation, n.To)
}

// Payload is what a message carries or an operation produces: a Tensor, a Blob, or nil for a
// value that stays inside the executor. It is immutable once handed over, and counted by reference.
type Payload interface {
	Bytes() int64
	Retain()
	Release()
}

// Tensor is a payload in device memory.
type Tensor struct{ device.Slice }

// View is that of n elements from lo on.
func (t Tensor) View(lo, n int) Payload { return Tensor{t.Sub(lo, n)} }

// Blob is a payload of plain bytes.
type Blob []byte

func (b Blob) Bytes() int64 { return int64(len(b)) }
func (b Blob) Retain()      {}
func (b Blob) Release()     {}

// Message is a named payload on its way between two actors.
type Message struct {
	Name    Name
	Payload Payload
	// Sum is the CRC-32C of the bytes of the payload, made by the shell of the sender; 0 when it has made none.
	Sum uint32
}

// Event is what happens to a machine.
type Event interface{ event() }

// Arrived is a message that came in. The machine owns one reference to its payload.
type Arrived struct{ Message Message }

// Completed says that a launched operation is complete. Out are the payloads of its Writes, in
// order, one reference each; Err is nil or why it failed. Elapsed is the time it was busy.
type Completed struct {
	Round   plan.Round
	Op      int
	Out     []Payload
	Err     error
	Elapsed time.Duration
}

// PeerIs tells a machine the current incarnation of another actor, and the round that it recovers
// into. Messages of older incarnations are refused; what the peer needs in that round is sent again. The
// peer itself is told too, and one of its older lives, which ends with ErrFenced. Told twice, it is the same.
type PeerIs struct {
	Peer        plan.ActorID
	Incarnation int
	Round       plan.Round
}

// Restarted tells the trainer that an actor has begun a new life and has to catch up.
type Restarted struct {
	Actor       plan.ActorID
	Incarnation int
}

// Reshare tells the trainer by which shares the steps are run that it opens from now on. They have been proved.
type Reshare struct{ Shares plan.Shares }

// Restored says that an actor that began a new life has its state back: it walks the round that is open.
type Restored struct {
	Actor       plan.ActorID
	Incarnation int
}

// Tick is the passing of time.
type Tick struct{ Now time.Time }

// Failed tells the trainer that an actor or node cannot go on.
type Failed struct {
	Actor plan.ActorID
	// Incarnation is the life that has failed.
	Incarnation int
	Node        string
	Round       plan.Round
	Op          string
	Cause       string
}

// Announce tells every actor of a peer's new life (trainer).
type Announce struct{ PeerIs PeerIs }

// Begin opens the run (trainer).
type Begin struct{}

// Interrupt asks the trainer for a clean stop after the step that is running.
type Interrupt struct{}

func (Arrived) event()   {}
func (Completed) event() {}
func (PeerIs) event()    {}
func (Tick) event()      {}
func (Failed) event()    {}
func (Begin) event()     {}
func (Restarted) event() {}
func (Restored) event()  {}
func (Reshare) event()   {}
func (Interrupt) event() {}

// Effect is what a machine wants done. The shell performs effects in order.
type Effect interface{ effect() }

// Send sends a message, which the shell copies. The machine keeps its own reference to the payload (outbox)
// until the commit; the shell retains it for as long as it needs it.
type Send struct{ *Message }

// Launch runs an operation on the actor's stream. Launches run in the order in which they were given.
type Launch struct{ *Run }

// Run is what a Launch runs. In are the payloads of Op.Reads in order. It stays valid until the Completed.
type Run struct {
	Round plan.Round
	Index int
	Op    *plan.Op
	In    []Payload
}

// Drop gives a reference back, after everything launched so far is complete.
type Drop struct{ Payload Payload }

// Refused reports a message that the machine did not take, and why. Duplicates are counted, not reported.
type Refused struct {
	Name   Name
	Reason string
}

// Fail says that this actor cannot go on; the shell tells the trainer.
type Fail struct {
	Round plan.Round
	Op    string
	Cause error
}

// Committed says that all rounds before Round have committed here.
type Committed struct{ Round plan.Round }

// Stop ends the run (trainer): nil Err for a clean end.
type Stop struct{ Err error }

func (Send) effect()      {}
func (Launch) effect()    {}
func (Drop) effect()      {}
func (Refused) effect()   {}
func (Fail) effect()      {}
func (Committed) effect() {}
func (Stop) effect()      {}
func (Announce) effect()  {}

// Discard gives back the references of an event that a machine which has stopped does not handle.
func Discard(e Event) []Effect {
	var out []Effect
	drop := func(p Payload) {
		if p != nil {
			out = append(out, Drop{p})
		}
	}
	switch e := e.(type) {
	case Arrived:
		drop(e.Message.Payload)
	case Completed:
		for _, p := range e.Out {
			drop(p)
		}
	}
	return out
}

// ErrFenced is the cause of the end of a life after which another one has begun.
var ErrFenced = errors.New("fenced")

// Corruption is the cause of a Fail at an actor that was sent a message twice with different bytes.
type Corruption struct {
	// Name and Sum are those of the second one; Before is the incarnation of the sender of the first.
	Name           Name
	Sum, SumBefore uint32
	Before         int
}

func (c *Corruption) Error() string {
	return fmt.Sprintf("silent corruption: %s, %s, of %s had the checksum %08x from its incarnation %d and has %08x from its incarnation %d",
		c.Name.Value, c.Name.Round, c.Name.From, c.SumBefore, c.Before, c.Sum, c.Name.Incarnation)
}

// Machine is the logic of an actor: no goroutine, clock, randomness, network or device inside.
// The same events in the same order give the same effects.
type Machine interface {
	ID() plan.ActorID
	// Handle is one step. The effects are good until the next one.
	Handle(Event) []Effect
	// Waiting describes what the machine waits for now.
	Waiting() Wait
}

// Wait is what an actor waits for: the operation at the head of its program, and the first value
// it lacks with the actor that owes it. Op is empty when no round is open.
type Wait struct {
	Round plan.Round
	Op    string
	Value plan.Value
	From  plan.ActorID
	// Running says that an operation runs on the stream now: nobody else is to blame.
	Running bool
}

func (w Wait) String() string {
	switch {
	case w.Op == "":
		return fmt.Sprintf("idle after %s", w.Round)
	case w.Running:
		return fmt.Sprintf("running %s (%s)", w.Op, w.Round)
	}
	return fmt.Sprintf("at %s (%s), waiting for %s from %s", w.Op, w.Round, w.Value, w.From)
}

// Executor runs the operations of an actor on its stream. It is the only part of an actor that
// touches tensors.
type Executor interface {
	// Run issues the kernels of op and returns the payloads of op.Writes in order (nil for values
	// that stay inside the executor). It is called on the stream, never concurrently.
	Run(k device.Kernels, round plan.Round, op *plan.Op, in []Payload) ([]Payload, error)
	// Free ends values that stay inside the executor. It is called on the stream, after the
	// operation whose Frees they are.
	Free(round plan.Round, v plan.Value)
}
