package model

import "github.com/troupe-train/troupe/device"

// turnedAttention is attentionCore of queries and keys that are turned by their position. They are kept as
// they come and turned again in the backward pass: scratch memory instead of memory that is held.
type turnedAttention struct{ attentionCore }

func (a turnedAttention) Spec() Spec {
	s := a.attentionCore.Spec()
	s.Work = func(rows, context int) int { return rows * context * 3 * a.c.Width }
	return s
}

func (a turnedAttention) Forward(k device.Kernels, c *Call) {
	qkv, s := c.Work, a.shape(c.Rows, c.Context)
	k.RoPE(qkv, c.In[1], s)
	k.Attention(c.Out[1], c.Saved[0], qkv, s)
	k.Copy(c.Out[0], c.In[0])
}

func (a turnedAttention) BackwardInput(k device.Kernels, c *Call) {
	qkv, s := c.Work, a.shape(c.Rows, c.Context)
	k.RoPE(qkv, c.In[1], s)
	k.AttentionBackward(c.DIn[1], c.DOut[1], c.Out[1], c.Saved[0], qkv, c.Sums, s)
	k.RoPEBackward(c.DIn[1], c.DIn[1], s)
	k.Copy(c.DIn[0], c.DOut[0])
}

func (a turnedAttention) Cost(rows, context int) Cost {
	c := a.attentionCore.Cost(rows, context)
	e := float64(rows*context) * float64(2*a.c.Width)
	c.Forward += turnFLOPs * e
	c.BackwardInput += 2 * turnFLOPs * e
	return c
}

// plainOutput is attentionOutput without a bias.
//
//	residual, attended [rows*context, width] -> residual [rows*context, width]
type plainOutput struct{ attentionOutput }

func newPlainOutput(c GPTConfig, block string) *plainOutput {
	a := newAttentionOutput(c, block)
	a.spec.Params = a.spec.Params[:1]
	return &plainOutput{*a}
}

func (a *plainOutput) Forward(k device.Kernels, c *Call) {
	a.proj.forward(k, c.Out[0], c.In[1], c.Params[0], device.Slice{}, c.tokens())
	k.Dropout(c.Out[0], c.In[0], c.Out[0], a.c.branchMask(c, siteAttention))
}

func (a *plainOutput) BackwardWeight(k device.Kernels, c *Call) {
	a.proj.backwardWeight(k, c.Grads[0], device.Slice{}, a.c.maskedBranch(c), c.In[1], c.tokens())
}

// gatedMLP is residual + dropout(down(silu(gate) up)) with (gate, up) = gates(norm(residual)).
//
//	residual [rows*context, width] -> residual [rows*context, width]
//
// It keeps gate and up and makes the outputs of the norm and of SwiGLU again for the weight gradients.
type gatedMLP struct {
	c           GPTConfig
	gates, down linear
	spec        Spec
}

// The parameters of gatedMLP by index. Rows of the gates come first in their matrix, those of up behind them.
const (
	gatedGain = iota
	gatedGates
	gatedDown
)

func newGatedMLP(c GPTConfig, block string) *gatedMLP {
	hidden := c.gatedHidden()
	return &gatedMLP{c, linear{c.Width, 2 * hidden}, linear{hidden, c.Width}, Spec{
		Name: "mlp",
		Params: []Param{
			vector(block+".mlp.norm.gain", c.Width, Ones),
			matrix(block+".mlp.gates.weight", 2*hidden, c.Width, c.initStd()),
			matrix(block+".mlp.down.weight", c.Width, hidden, c.residualStd()),
		},
		In:    []Port{c.stream()},
		Out:   []Port{c.stream()},
		Saved: append(rmsSaved[:1:1], Port{Name: "gates", PerToken: 2 * hidden}),
		Stash: append([]Port{c.normGrad(), {Name: "gates gradient", PerToken: 2 * hidden}}, c.branchGrad()...),
		Work:  func(rows, context int) int { return rows * context * (c.Width + hidden) },
		Sums:  rmsSums,
	}}
}

func (m *gatedMLP) Spec() Spec { return m.spec }

func (m *gatedMLP) Forward(k device.Kernels, c *Call) {
	n, x := c.tokens(), c.In[0]
	w := scratch{c.Work}
	y, h := w.take(n*m.c.Width), w.take(n*m.down.in)
	k.RMSNorm(y, c.Saved[0], x, c.Params[gatedGain], n, m.c.Width)
	m.gates.forward(k, c.Saved[1], y, c.Params[gatedGates], device.Slice{}, n)
	k.SwiGLU(h, c.Saved[1], n, m.down.in)
	m.down.forward(k, c.Out[0], h, c.Params[gatedDown], device.Slice{}, n)
	k.Dropout(c.Out[0], x, c.Out[0], m.c.branchMask(c, siteMLP))
}

func (m *gatedMLP) BackwardInput(k device.Kernels, c *Call) {
	n, dy, dg := c.tokens(), c.Stash[0], c.Stash[1]
	w := scratch{c.Work}
	dh := w.take(n * m.down.in)
	m.down.backwardInput(k, dh, m.c.maskBranch(k, c, siteMLP), c.Params[gatedDown], n)
	k.SwiGLUBackward(dg, dh, c.Saved[1], n, m.down.in)
	m.gates.backwardInput(k, dy, dg, c.Params[gatedGates], n)
	k.RMSNormBackwardInput(c.DIn[0], c.DOut[0], dy, c.In[0], c.Params[gatedGain], c.Saved[0], n, m.c.Width)
}

func (m *gatedMLP) BackwardWeight(k device.Kernels, c *Call) {
	n := c.tokens()
	w := scratch{c.Work}
	h := w.take(n * m.down.in)
	k.SwiGLU(h, c.Saved[1], n, m.down.in)
	m.down.backwardWeight(k, c.Grads[gatedDown], device.Slice{}, m.c.maskedBranch(c), h, n)
	y := rmsAgain(k, c, &w, n, m.c.Width)
	m.gates.backwardWeight(k, c.Grads[gatedGates], device.Slice{}, c.Stash[1], y, n)
	k.RMSNormBackwardWeight(c.Grads[gatedGain], c.Stash[0], c.In[0], c.Saved[0], n, m.c.Width)
}

func (m *gatedMLP) Cost(rows, context int) Cost {
	n := rows * context
	p := m.gates.product(n) + m.down.product(n)
	e, h := float64(n)*float64(m.c.Width), float64(n)*float64(m.down.in)
	return Cost{
		Forward:        p + (rmsFLOPs+m.c.dropoutFLOPs()+2)*e + swigluFLOPs*h,
		BackwardInput:  p + (rmsBackwardInputFLOPs+m.c.dropoutFLOPs())*e + swigluBackwardFLOPs*h,
		BackwardWeight: p + (rmsFLOPs+rmsBackwardWeightFLOPs)*e + swigluFLOPs*h,
		Bytes:          trafficBytes(m.spec, rows, context),
	}
}
