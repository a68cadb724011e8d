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
// # New lives
//
// An actor that dies begins a new life, with a higher incarnation, a fresh Walker and a fresh Executor. It is started in
// the Recover of the step, in which it gets the state at the start of the step from who offers it, and then
// in the round that is open, which it walks from its beginning. Everybody is told of it (PeerIs): they
// refuse what older lives still send, and send it again all that they had sent it in this round. What it sends
// a second time has the same bits, which is checked, and is dropped. So nobody else computes
// anything twice. Outboxes are kept until the commit for this reason. The order of Start, PeerIs and messages does not matter,
// and each may come twice.
//
// Invariants:
//   - The same events in the same order give the same effects.
//   - Operations are launched in the order of the program. Which values an operation reads, and which
//     messages are sent, do not depend on the order in which messages arrive or how often.
//   - Every reference to a payload that a Walker gets or takes is given back by one Drop: a value's when
//     the last operation that reads it has been launched or sent, a sent message's at the commit.
package machine
