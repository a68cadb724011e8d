package plan

import (
	"fmt"
	"slices"
)

// recoverable are the phases in which an actor that dies recovers. In Init it begins again.
var recoverable = []Phase{EvaluatePhase, SnapshotPhase, TrainPhase}

// checkOffers proves that an actor can recover in every phase: each message that its program of Recover
// receives is offered exactly once, by the actor that it names, and each offer is one of those; and an
// offer can be had whatever others do, because nothing before it reads a value that comes by message.
func checkOffers(pl *Plan) error {
	received := map[wire]end{}
	for _, a := range pl.Actors {
		for i, op := range pl.Programs[RecoverPhase][a.ID].Ops {
			if op.Kind != Receive {
				continue
			}
			w := wire{op.Peer, a.ID, op.Writes[0]}
			if before, ok := received[w]; ok {
				return fmt.Errorf("plan: %s, %s, operation %d (%s): is the same message as that of operation %d", RecoverPhase, a.ID, i, op, before.op)
			}
			received[w] = end{a.ID, i}
		}
	}
	for _, ph := range recoverable {
		offered := map[wire]end{}
		for _, a := range pl.Actors {
			if err := offersOf(pl, ph, a.ID, received, offered); err != nil {
				return err
			}
		}
		for w, e := range received {
			if _, ok := offered[w]; !ok {
				return fmt.Errorf("plan: %s, %s, operation %d (%s): %s does not offer it in %s", RecoverPhase, e.actor, e.op, pl.Programs[RecoverPhase][e.actor].Ops[e.op], w.from, ph)
			}
		}
	}
	return nil
}

func offersOf(pl *Plan, ph Phase, a ActorID, received, offered map[wire]end) error {
	foreign := map[Value]bool{}
	waits := -1 // the first operation that waits for a message
	for i, op := range pl.Programs[ph][a].Ops {
		errorf := func(format string, args ...any) error {
			return fmt.Errorf("plan: %s, %s, operation %d (%s): %s", ph, a, i, op, fmt.Sprintf(format, args...))
		}
		if op.Kind == Receive {
			foreign[op.Writes[0]] = true
		}
		if waits < 0 && slices.ContainsFunc(op.Reads, func(v Value) bool { return foreign[v] }) {
			waits = i
		}
		if op.Kind != Offer {
			continue
		}
		w := wire{a, op.Peer, op.As}
		if _, ok := received[w]; !ok {
			return errorf("%s does not receive it when it recovers", op.Peer)
		}
		if before, ok := offered[w]; ok {
			return errorf("is the same message as that of operation %d", before.op)
		}
		if waits >= 0 {
			return errorf("comes after operation %d, which waits for a message", waits)
		}
		offered[w] = end{a, i}
	}
	return nil
}
