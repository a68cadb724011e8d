// Package allreduce has the arithmetic of collectives between actors.
//
// There is no collective call at run time. Who sends which piece to whom is lowered into the programs
// of the actors when the plan is made, as Sends and Receives like any others; what is left
// for an executor is to add up what came, in the right order, and to put pieces back together:
//
//	order, err := allreduce.NewSum(n, parts)                // once
//	sum, err := order.Of(k, received, alloc)                // a shard: the end of a reduce-scatter
//	allreduce.Gather(k, vector, pieces, received)           // a stage: the end of an all-gather
//
// The exchange is direct: each of the p actors that hold a vector sends each owner its piece, and each
// owner sends its piece back to all. Every element crosses the network 2(p-1)/p times per actor, as
// in a ring, in two hops instead of 2(p-1).
//
// Invariant: the result of a Sum depends on the number of micro-batches and on their gradients alone.
// The sum of one use is that of the balanced binary tree over micro-batches (plan.Children), however the
// leaves were summed before they came; uses are added in ascending order.
package allreduce
