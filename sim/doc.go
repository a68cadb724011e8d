// Package sim is the second shell: it drives the machines and executors of a plan in one
// goroutine, on a virtual clock and a virtual network that delays, reorders and repeats messages. All
// of it follows from one seed.
//
//	actors, err := sim.Actors(p, dev, sim.Actor{Machine: trainer, Executor: executor, Account: account})
//	result, err := sim.Run(sim.Config{Actors: actors, Device: dev, Seed: seed, Network: sim.Unkind})
//	fmt.Println(result.Time, result.Events, result.Trace)
//
// The kernels are the real ones: the whole simulation is one piece of work on a stream of one
// thread, and every operation runs on that thread when its virtual time begins. How long it takes
// in virtual time is drawn from the seed too.
//
// A Bench runs a plan under faults (plan/fault) and holds every run against the one without:
//
//	b, err := sim.NewBench(sim.BenchConfig{Plan: p, Device: dev, Rounds: rounds, Nodes: 5, Network: sim.Unkind})
//	o := b.Chaos(seed)                 // the random schedule of a seed
//	if o.Violation != nil {
//		fmt.Println(b.Shrink(o))       // the smallest schedule that still goes wrong, with the seed
//	}
//
// Failures are answered by supervisor.Recovery, as in a real run; the simulator only carries out what it decides.
// It has nodes that are killed, stopped and parted from the others; lives that go on unheard on the far side; a
// journal, from which a trainer begins a new life; and checkpoints, to which the job goes back when the state of a step
// is lost. A frame that is dropped or damaged on the wire is sent again by the link, as over NATS.
//
// A run under faults must end with the weights, losses and norms of the run without; every step commits once, and every
// sample is in one committed step; nobody waits for ever; nobody uses more memory than a recovery may; in the end
// all memory is given back, also that of lives that were killed; and whatever two lives of an actor compute
// has the same checksum. With Stubs, operations hash what they read instead of running kernels: that
// proves the same of the protocol alone, in a fraction of the time.
//
// Invariants:
//   - The same plan and seed give the same events in the same order, and so the same trace.
//   - A run ends: with the trainer's Stop, with a *Deadlock when nothing is left to happen, or with
//     an error after Config.EventsMax events.
//   - At the end every reference is given back. What an account still holds then other than
//     parameters and optimizer state, or at all after the death of its owner, is an error.
package sim
