package machine

import (
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// Outs is where an executor keeps what it returns from Run, so that a step like the one before takes
// nothing from the Go heap:
//
//	out := x.outs.Of(op)
//	out.Tensor(0, y)
//	return out.List(), nil
//
// An operation runs at most once a round, and what it returned has been taken in before the next round opens.
type Outs struct{ of map[*plan.Op]*Out }

// Out is the payloads of the values that one operation writes.
type Out struct {
	list []Payload
	// known are payloads that stood at a place before. They are immutable, so one of the same view of the
	// same buffer serves again; memory that is used again comes back in the same buffers.
	known [][]Payload
}

// knownLimit bounds what is remembered of a place where buffers do not come back.
const knownLimit = 32

// Of is the place for the values that op writes, which are nil until they are put there.
func (o *Outs) Of(op *plan.Op) *Out {
	x, ok := o.of[op]
	if !ok {
		if o.of == nil {
			o.of = map[*plan.Op]*Out{}
		}
		x = &Out{make([]Payload, len(op.Writes)), make([][]Payload, len(op.Writes))}
		o.of[op] = x
	}
	clear(x.list)
	return x
}

// Tensor makes s the payload of value i. The reference to s goes with it.
func (o *Out) Tensor(i int, s device.Slice) { o.list[i] = again(&o.known[i], s) }

// Put makes p the payload of value i.
func (o *Out) Put(i int, p Payload) { o.list[i] = p }

// List is the payloads, in the order of the values.
func (o *Out) List() []Payload { return o.list }

// again is Tensor{s} as a payload: one that is known, or a new one.
func again(known *[]Payload, s device.Slice) Payload {
	for _, p := range *known {
		if p.(Tensor).Slice == s {
			return p
		}
	}
	if len(*known) == knownLimit {
		*known = (*known)[:0]
	}
	p := Payload(Tensor{s})
	*known = append(*known, p)
	return p
}
