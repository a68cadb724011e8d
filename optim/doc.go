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
// # The state at the start of the step
//
// An actor that restarts in step s needs the state from before s until s has committed, and a node takes several actors
// with it. So nobody changes state before the commit: a shard makes the next weights and moments beside the old ones,
// publishes the weights, and puts both in their place by Advance, the first operation of the step that
// follows. Its mirror, on another node, holds the same state: it is sent the reduced gradient and the verdict,
// keeps them (Hold), and updates by Advance in its turn. A stage that restarts gets the parameters of the step from the
// mirrors, a shard its state from its mirror, and a mirror from its shard. Only when a shard and its mirror are down at
// once is the state lost.
//
// What it costs for each parameter, with AdamW: 4 bytes of traffic a step from shard to mirror, where a
// snapshot of weights and moments would be 12; at the shard 12 bytes for the next state until the commit; at the
// mirror 12 bytes for the state, 4 for the gradient until the commit, and one more pass of the optimizer. A
// shard that updated in place would save its 12, but then a stage that dies together with the mirror
// that it recovers from, after the update, would find the state of the step nowhere. A job of one stage on one
// node has no mirror: the process is what ends there, and it would end with it.
//
// Invariants:
//   - Rate, decay and bias correction are pure functions of the job and the step: there is nothing
//     to restore but weights and moments.
//   - New weights are written to new memory, and the piece that is published is the master copy
//     itself: whoever holds the old one still reads the old weights. Where stages store bfloat16, it is a copy, rounded.
//   - From Advance to Advance the state is that of the step, and what is offered of it never changes.
//   - The norm counts every element of every parameter once, tied or not, and sums blocks in
//     canonical order, so it has the same bits in every layout.
//
// A new rule is one file with a Rule and one line in Rules.
package optim
