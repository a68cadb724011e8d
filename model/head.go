package model

import "github.com/troupe-train/troupe/device"

// logits is the final layer norm and the product with the token embedding of layer "embed".
//
//	residual [rows*context, width] -> logits [rows*context, vocab]
type logits struct {
	c    GPTConfig
	out  linear
	spec Spec
}

func newLogits(c GPTConfig) *logits {
	return &logits{c, linear{c.Width, c.Vocab}, Spec{
		Name: "logits",
		Params: []Param{
			vector("head.norm.gain", c.Width, Ones),
			vector("head.norm.bias", c.Width, Zeros),
			c.tokenTable(),
		},
		In:    []Port{c.stream()},
		Out:   []Port{{Name: "logits", PerToken: c.Vocab}},
		Saved: normSaved,
		Stash: []Port{c.normGrad()},
		Work:  func(rows, context int) int { return rows * context * c.Width },
		Sums:  normSums,
	}}
}

func (l *logits) Spec() Spec { return l.spec }

func (l *logits) Forward(k device.Kernels, c *Call) {
	n := c.tokens()
	y := c.Work.Sub(0, n*l.c.Width)
	k.LayerNorm(y, c.Saved[0], c.Saved[1], c.In[0], c.Params[0], c.Params[1], n, l.c.Width)
	l.out.forward(k, c.Out[0], y, c.Params[2], device.Slice{}, n)
}

func (l *logits) BackwardInput(k device.Kernels, c *Call) {
	n, dy := c.tokens(), c.Stash[0]
	l.out.backwardInput(k, dy, c.DOut[0], c.Params[2], n)
	k.LayerNormBackwardInput(c.DIn[0], device.Slice{}, dy, c.In[0], c.Params[0], c.Saved[0], c.Saved[1], n, l.c.Width)
}

func (l *logits) BackwardWeight(k device.Kernels, c *Call) {
	n := c.tokens()
	y := normAgain(k, c, &scratch{c.Work}, n, l.c.Width)
	l.out.backwardWeight(k, c.Grads[2], device.Slice{}, c.DOut[0], y, n)
	k.LayerNormBackwardWeight(c.Grads[0], c.Grads[1], c.Stash[0], c.In[0], c.Saved[0], c.Saved[1], n, l.c.Width)
}

func (l *logits) Cost(rows, context int) Cost {
	n := rows * context
	p, e := l.out.product(n), float64(n)*float64(l.c.Width)
	return Cost{
		Forward:        p + normFLOPs*e,
		BackwardInput:  p + normBackwardInputFLOPs*e,
		BackwardWeight: p + (normFLOPs+normBackwardWeightFLOPs)*e,
		Bytes:          trafficBytes(l.spec, rows, context),
	}
}

// crossEntropy is loss[i] = log(sum of exp(logits[i])) - logits[i, targets[i]].
//
//	logits [rows*context, vocab] -> loss [rows*context]
type crossEntropy struct{ vocab int }

func (e crossEntropy) Spec() Spec {
	return Spec{
		Name:    "loss",
		Targets: true,
		In:      []Port{{Name: "logits", PerToken: e.vocab}},
		Out:     []Port{{Name: "loss", PerToken: 1, Float: true}},
		Saved:   []Port{{Name: "lse", PerToken: 1, Float: true}},
	}
}

func (e crossEntropy) Forward(k device.Kernels, c *Call) {
	k.CrossEntropy(c.Out[0], c.Saved[0], c.In[0], c.Targets, c.tokens(), e.vocab)
}

// BackwardInput starts the backward pass: c.DOut is not read, the gradient of every token's loss is c.LossScale.
func (e crossEntropy) BackwardInput(k device.Kernels, c *Call) {
	k.CrossEntropyBackward(c.DIn[0], c.In[0], c.Saved[0], c.Targets, c.tokens(), e.vocab, c.LossScale)
}

func (e crossEntropy) BackwardWeight(device.Kernels, *Call) {}

func (e crossEntropy) Cost(rows, context int) Cost {
	n := float64(rows*context) * float64(e.vocab)
	return Cost{Forward: softmaxFLOPs * n, BackwardInput: softmaxFLOPs * n, Bytes: trafficBytes(e.Spec(), rows, context)}
}
