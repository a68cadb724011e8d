package model

import "github.com/troupe-train/troupe/device"

// mlp is the second half of a block: residual + dropout(projection(gelu(fc(norm(residual))))).
// The hidden layer is four times as wide as the residual stream.
//
//	residual [rows*context, width] -> residual [rows*context, width]
//
// It keeps the input of GELU and makes the outputs of the norm and of GELU again for the weight gradients: 5
// of the 9 tensors of one width that it would otherwise keep, for 2 of its cheap kernels.
type mlp struct {
	c        GPTConfig
	fc, proj linear
	spec     Spec
}

// The parameters of mlp by index.
const (
	mlpGain = iota
	mlpBias
	mlpFCWeight
	mlpFCBias
	mlpProjWeight
	mlpProjBias
)

func newMLP(c GPTConfig, block string) *mlp {
	hidden := 4 * c.Width
	return &mlp{c, linear{c.Width, hidden}, linear{hidden, c.Width}, Spec{
		Name: "mlp",
		Params: []Param{
			vector(block+".mlp.norm.gain", c.Width, Ones),
			vector(block+".mlp.norm.bias", c.Width, Zeros),
			matrix(block+".mlp.fc.weight", hidden, c.Width, c.initStd()),
			vector(block+".mlp.fc.bias", hidden, Zeros),
			matrix(block+".mlp.projection.weight", c.Width, hidden, c.residualStd()),
			vector(block+".mlp.projection.bias", c.Width, Zeros),
		},
		In:    []Port{c.stream()},
		Out:   []Port{c.stream()},
		Saved: append(normSaved[:2:2], Port{Name: "hidden", PerToken: hidden}),
		Stash: append([]Port{c.normGrad(), {Name: "hidden gradient", PerToken: hidden}}, c.branchGrad()...),
		Work:  func(rows, context int) int { return rows * context * (c.Width + hidden) },
		Sums:  normSums,
	}}
}

func (m *mlp) Spec() Spec { return m.spec }

func (m *mlp) Forward(k device.Kernels, c *Call) {
	n, x, h := c.tokens(), c.In[0], c.Saved[2]
	w := scratch{c.Work}
	y := w.take(n * m.c.Width)
	g := w.take(n * m.fc.out)
	k.LayerNorm(y, c.Saved[0], c.Saved[1], x, c.Params[mlpGain], c.Params[mlpBias], n, m.c.Width)
	k.MatMul(h, y, c.Params[mlpFCWeight], device.MatMul{M: n, N: m.fc.out, K: m.fc.in, TransB: true, Bias: c.Params[mlpFCBias], GELU: g})
	m.proj.forward(k, c.Out[0], g, c.Params[mlpProjWeight], c.Params[mlpProjBias], n)
	k.Dropout(c.Out[0], x, c.Out[0], m.c.branchMask(c, siteMLP))
}

func (m *mlp) BackwardInput(k device.Kernels, c *Call) {
	n, dy, dh := c.tokens(), c.Stash[0], c.Stash[1]
	m.proj.backwardInput(k, dh, m.c.maskBranch(k, c, siteMLP), c.Params[mlpProjWeight], n)
	k.GELUBackward(dh, dh, c.Saved[2])
	m.fc.backwardInput(k, dy, dh, c.Params[mlpFCWeight], n)
	k.LayerNormBackwardInput(c.DIn[0], c.DOut[0], dy, c.In[0], c.Params[mlpGain], c.Saved[0], c.Saved[1], n, m.c.Width)
}

func (m *mlp) BackwardWeight(k device.Kernels, c *Call) {
	n, dh := c.tokens(), c.Stash[1]
	w := scratch{c.Work}
	g := w.take(n * m.fc.out)
	k.GELU(g, c.Saved[2])
	m.proj.backwardWeight(k, c.Grads[mlpProjWeight], c.Grads[mlpProjBias], m.c.maskedBranch(c), g, n)
	y := normAgain(k, c, &w, n, m.c.Width)
	m.fc.backwardWeight(k, c.Grads[mlpFCWeight], c.Grads[mlpFCBias], dh, y, n)
	k.LayerNormBackwardWeight(c.Grads[mlpGain], c.Grads[mlpBias], c.Stash[0], c.In[0], c.Saved[0], c.Saved[1], n, m.c.Width)
}

func (m *mlp) Cost(rows, context int) Cost {
	n := rows * context
	p := m.fc.product(n) + m.proj.product(n)
	e, h := float64(n)*float64(m.c.Width), float64(n)*float64(m.fc.out)
	return Cost{
		Forward:        p + (normFLOPs+m.c.dropoutFLOPs()+2)*e + geluFLOPs*h,
		BackwardInput:  p + (normBackwardInputFLOPs+m.c.dropoutFLOPs())*e + geluBackwardFLOPs*h,
		BackwardWeight: p + (normFLOPs+normBackwardWeightFLOPs+1)*e + (geluFLOPs+1)*h,
		Bytes:          trafficBytes(m.spec, rows, context),
	}
}
