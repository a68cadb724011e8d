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
// Invariants:
//   - The same plan and seed give the same events in the same order, and so the same trace.
//   - A run ends: with the trainer's Stop, with a *Deadlock when nothing is left to happen, or with
//     an error after Config.EventsMax events.
//   - At the end every reference is given back. What an account still holds then other than
//     parameters and optimizer state is an error.
package sim
