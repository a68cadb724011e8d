// Package reference is a GPT written for reading: one file, float64, one number after the other, no
// kernels and no gradients by hand. The tests compare the real model with it, tensor by tensor.
//
//	g := reference.GPT{Layers: 2, Width: 16, Heads: 4, Context: 8, Vocab: 11, Parameters: parameters}
//	losses, gradients := g.Gradients(tokens, targets, 0, 1/float64(len(tokens)*g.Context))
//
// Every number of a forward pass is recorded on a tape with its slopes in the at most two numbers
// that it was made of; gradients follow from the chain rule alone. It is slow, and meant for models of
// a few thousand parameters.
package reference
