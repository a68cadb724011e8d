// Package stage is the actor that runs one rank of a pipeline: its machine is a walker on the
// stage's programs, and its executor runs the chunks of the rank on a stream.
//
//	m := stage.NewMachine(p, id)
//	x, err := stage.NewExecutor(p, id, dev, device.NewAccount(string(id), limit))
//	defer x.Close()
//	...a shell drives m, and runs what it launches: launch.Perform(kernels, x)
//
// A Chunk is of use without any plan: `troupe generate` runs one over the whole model.
//
//	w, err := stage.NewWeights(dev, dev.Float(), account, m, plan.Range{Lo: 0, Hi: len(m.Layers)})
//	...fill w.Vector(b) for every bucket b of the model
//	c := stage.NewChunk(w, plan.Range{Lo: 0, Hi: len(m.Layers)})
//	logits, err := c.ForwardTo(k, "logits", stage.MicroBatch{Rows: 1, Context: n, Tokens: tokens}, device.Slice{})
//
// Invariants:
//   - Everything is allocated from the Specs of the segments and charged to the stage's account;
//     memory that a call fails to use goes back before the error is returned.
//   - What Forward keeps lives until its Saved is freed, what BackwardInput adds until its Stashed
//     is; between rounds a stage holds its parameters and nothing else.
//   - A gradient that BackwardWeight writes is a whole flat vector of its bucket, and only Add
//     writes to it again, before anybody else has seen it.
package stage
