// Package optim updates weights. Each shard actor owns a piece of every parameter vector of its
// pipeline rank (ZeRO stage 1, Rajbhandari et al. 2020), with the optimizer's moments: it sums the
// gradients of the replicas, tells the trainer the squares of its piece, waits for the trainer's verdict,
// and publishes new weights.
//
//	m := optim.NewMachine(p, id)
//	x, err := optim.NewExecutor(p, id, dev, device.NewAccount(string(id), limit))
//	defer x.Close()
//	...a shell drives m, and runs what it launches: launch.Perform(kernels, x)
//
// The trainer decides on the whole step from the norms of all shards:
//
//	norm, err := optim.GlobalNorm(p, norms)          // or which parameter's gradient is not finite
//	factor := optim.ClipFactor(norm, job.Train.Optimizer.Clip)
//
// Invariants:
//   - Rate, decay and bias correction are pure functions of the job and the step: there is nothing
//     to restore but weights and moments.
//   - New weights are written to new memory, and the piece that is published is the master copy
//     itself: whoever holds the old one still reads the old weights.
//   - The norm counts every element of every parameter once, tied or not, and sums blocks in
//     canonical order, so it has the same bits in every layout.
//
// A new rule is one file with a Rule and one line in Rules.
package optim
