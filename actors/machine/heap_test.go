package machine_test

import (
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// TestRoundsTakeNoHeap: a round like the one before takes one object from the Go heap, the Committed that it
// begins with, whatever the number of operations and messages.
func TestRoundsTakeNoHeap(t *testing.T) {
	const micros, warm, runs = 6, 5, 20
	first, second := initial(), middleStage(micros)
	p := &plan.Plan{Job: &plan.Job{Name: "job"}}
	for _, q := range []*plan.Program{&first, &second} {
		p.Programs[q.Phase] = map[plan.ActorID]*plan.Program{middle: q}
	}
	m := &memory{references: 1}
	payloads := map[plan.Value]machine.Payload{}
	of := func(v plan.Value) machine.Payload {
		if machine.Resident(v) {
			return nil
		}
		if payloads[v] == nil {
			payloads[v] = machine.Tensor{Slice: device.Slice{Buffer: m, Offset: len(payloads), Len: 1, Type: device.F32}}
		}
		return payloads[v]
	}
	// The events of a round: all that is received, and then the ends of the operations in their order.
	round := func(q *plan.Program, r plan.Round) []machine.Event {
		name := machine.Name{Job: "job", Round: r, From: plan.Trainer, To: middle, Value: plan.Value{Kind: plan.Start, Piece: -1}}
		events := []machine.Event{machine.Arrived{Message: machine.Message{Name: name}}}
		for _, op := range q.Ops {
			if op.Kind == plan.Receive {
				name.From, name.Value = op.Peer, op.Writes[0]
				events = append(events, machine.Arrived{Message: machine.Message{Name: name, Payload: of(op.Writes[0])}})
			}
		}
		for i, op := range q.Ops {
			switch op.Kind {
			case plan.Receive, plan.Send, plan.Offer:
				continue
			}
			c := machine.Completed{Round: r, Op: i}
			for _, v := range op.Writes {
				c.Out = append(c.Out, of(v))
			}
			events = append(events, c)
		}
		return events
	}
	w := machine.NewWalker(p, middle)
	perform := func(events []machine.Event) (sent int) {
		for _, e := range events {
			for _, x := range w.Handle(e) {
				switch x := x.(type) {
				case machine.Send:
					sent++
				case machine.Drop:
					x.Payload.Release()
				case machine.Launch:
					if x.Op != &second.Ops[x.Index] && x.Op != &first.Ops[x.Index] || len(x.In) != len(x.Op.Reads) {
						t.Errorf("launch %d is of another operation", x.Index)
					}
				case machine.Refused, machine.Fail:
					t.Fatalf("%+v", x)
				}
			}
		}
		if !w.Finished() {
			t.Fatalf("%s does not end: %s", w.Round(), w.Waiting())
		}
		return sent
	}
	perform(round(&first, plan.Round{Phase: first.Phase}))
	var rounds [][]machine.Event
	for i := range warm + runs + 1 { // AllocsPerRun begins with one more
		rounds = append(rounds, round(&second, plan.Round{Step: int64(i), Phase: second.Phase}))
	}
	sent := 0
	next := func() {
		sent = perform(rounds[0])
		rounds = rounds[1:]
	}
	for range warm {
		next()
	}
	if n := testing.AllocsPerRun(runs, next); n > 1 {
		t.Errorf("a round takes %v objects", n)
	}
	if sent < 2*micros {
		t.Errorf("%d messages in a round of %d micro-batches", sent, micros)
	}
}
