// Package model holds neural networks as layers made of segments: what is computed, and nothing
// about where.
//
// A segment is the unit of compute. It says in a Spec what it reads, writes and keeps, and has three
// methods that issue kernels: Forward, BackwardInput (the gradient of its inputs) and BackwardWeight
// (the gradient of its parameters). An executor allocates everything from the Spec and calls them
// with a Call:
//
//	m, err := model.GPT(model.GPTConfig{Layers: 6, Width: 384, Heads: 6, Context: 256, Vocab: 256})
//	...
//	for i, l := range m.Layers {
//		for j, s := range l.Segments {
//			c := &model.Call{Rows: 4, Context: m.Context, Layer: i /* and the slices that s.Spec() asks for */}
//			places := m.Places(i, j) // where c.Params lie in the flat vectors of m.Buckets()
//			stream.Do(func(k device.Kernels) error { s.Forward(k, c); return nil }, done)
//		}
//	}
//
// Invariants:
//   - A segment keeps no state: what it writes is a function of its Call alone. So the forward pass
//     can be run again for the same bits, and any executor may run it.
//   - Random numbers are keyed by (seed, step, sample, layer, site, element) and never by the layout.
//   - Every gradient is overwritten, never added to; loss gradients are scaled by Call.LossScale, so
//     that the gradients of micro-batches add up to that of the batch.
//   - Weights of linear maps are stored [out, in].
//
// A new model is one file with its layers and one line in Registry.
package model
