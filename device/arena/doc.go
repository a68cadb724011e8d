// Package arena hands out parts of one piece of memory: that of an actor, whose plan says how much it
// holds at most.
//
//	a, err := arena.New(bytes)
//	block, at, ok := a.Take(4096)
//	a.Give(at, int64(len(block)))
//	a.Close() // the memory goes back with the last block
//
// A block gets the smallest hole that it fits into, the lowest one where there are several. Offsets are
// not part of a plan, because when other actors give back what they were sent is not: but where the same
// blocks are taken and given in the same order, they come out the same.
//
// On Linux the memory is outside the Go heap, in huge pages where the kernel has them, and takes up room
// only as it is first touched.
//
// Invariants: blocks begin at multiples of Align and do not overlap; holes do not touch each other.
package arena
