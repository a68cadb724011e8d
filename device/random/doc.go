// Package random makes random numbers without state: every number is a pure function of a key
// and a counter. So a number does not depend on who draws it, in which order, or how often, and
// recomputation, restarts and other layouts draw the same bits.
//
//	key := random.Key(seed, uint64(step), random.String("h3.dropout"))
//	u := random.Uniform(key, i)       // the i-th number of this key, in [0,1)
//	b := random.Block(key, sample, i) // 128 random bits
//
// Invariant: the values of Block, Key and String are frozen. Checkpoints and published hashes
// depend on them.
package random
