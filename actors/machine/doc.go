// Package machine has what the machines of all actors and both shells share: events, effects,
// addresses, the names of messages; and the Walker, the machine that walks the programs of a plan.
//
//	m := machine.NewWalker(p, plan.StageID(0, 0))
//	for _, effect := range m.Handle(machine.Arrived{Message: message}) {
//		switch e := effect.(type) {
//		case machine.Send:   // hand e.Message to the network
//		case machine.Launch: // out, err := e.Perform(kernels, executor) on the stream; then m.Handle(machine.Completed{...})
//		case machine.Drop:   // e.Payload.Release() behind what was launched
//		...
//		}
//	}
//
// A shell (actors, sim) handles events one at a time, performs effects in the order given, and ends
// with Close. The scripts in testdata show what a Walker does, event by event.
//
// Invariants:
//   - The same events in the same order give the same effects.
//   - Operations are launched in the order of the program. Which values an operation reads, and which
//     messages are sent, do not depend on the order in which messages arrive or how often.
//   - Every reference to a payload that a Walker gets or takes is given back by one Drop: a value's when
//     the last operation that reads it has been launched or sent, a sent message's at the commit.
package machine
