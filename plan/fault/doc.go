// Package fault says what goes wrong in a run, as data: which fault strikes whom, at which point of the
// protocol. The same plan of faults strikes real processes and the simulator.
//
//	faults, err := fault.Parse("kill stage.p1.d0 at forward micro-batch 3 of train step 7\n")
//	m := fault.NewMatcher(faults)
//	...a shell asks, before an operation, at a message received and at one sent:
//	for _, f := range m.At(id, round, op) { ... }      // who is struck now
//	for _, f := range m.Message(from, to, round, v) { ... } // what happens to this message
//
// A line is a fault:
//
//	kill|panic|hang|slow ACTOR at POINT
//	kill-node|pause-node|fill-disk|jump-clock NODE at POINT
//	partition NODE[,NODE...] at POINT
//	shift N,N[,N...] at trainer POINT
//	drop|duplicate|delay|reorder|corrupt VALUE|any from ACTOR|any to ACTOR|any at POINT
//
//	POINT = [ACTOR] [OPERATION|any] [value VALUE] [micro-batch N] [bucket N] [number N] of PHASE step N
//
// and after that `for DURATION`, `factor X` and `times N` where they mean something. A line that begins with # is a comment.
// docs/faults.md says what each of them does, and where.
//
// Everything here is pure. A Matcher counts, and strikes as often as it was told to and no more: an
// actor that walks its program again in a new life is not struck again. Where several processes have a Matcher each, one of them counts
// for all: the others ask it when their own has Reached a point.
package fault
