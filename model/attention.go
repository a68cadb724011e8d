package model

import "github.com/troupe-train/troupe/device"

// The attention half of a block, residual + dropout(projection(attention(qkv(norm(residual))))), is
// three segments. The residual stream goes through the first two unchanged.

// attentionInput is the layer norm and the projection to queries, keys and values.
//
//	residual [rows*context, width] -> residual, qkv [rows*context, 3*width]
type attentionInput struct {
	c    GPTConfig
	qkv  linear
	spec Spec
}

func newAttentionInput(c GPTConfig, block string) *attentionInput {
	return &attentionInput{c, linear{c.Width, 3 * c.Width}, Spec{
		Name: "attention input",
		Params: []Param{
			vector(block+".attention.norm.gain", c.Width, Ones),
			vector(block+".attention.norm.bias", c.Width, Zeros),
			matrix(block+".attention.qkv.weight", 3*c.Width, c.Width, c.initStd()),
			vector(block+".attention.qkv.bias", 3*c.Width, Zeros),
		},
		In:    []Port{c.stream()},
		Out:   []Port{c.stream(), c.qkv()},
		Saved: normSaved,
		Stash: []Port{c.normGrad()},
		Work:  func(rows, context int) int { return rows * context * c.Width },
		Sums:  normSums,
	}}
}

func (c GPTConfig) qkv() Port      { return Port{Name: "qkv", PerToken: 3 * c.Width} }
func (c GPTConfig) attended() Port { return Port{Name: "attended", PerToken: c.Width} }

func (a *attentionInput) Spec() Spec { return a.spec }

func (a *attentionInput) Forward(k device.Kernels, c *Call) {
	n, x := c.tokens(), c.In[0]
	y := c.Work.Sub(0, n*a.c.Width)
	k.LayerNorm(y, c.Saved[0], c.Saved[1], x, c.Params[0], c.Params[1], n, a.c.Width)
	a.qkv.forward(k, c.Out[1], y, c.Params[2], c.Params[3], n)
	k.Copy(c.Out[0], x)
}

func (a *attentionInput) BackwardInput(k device.Kernels, c *Call) {
	n, dy := c.tokens(), c.Stash[0]
	a.qkv.backwardInput(k, dy, c.DOut[1], c.Params[2], n)
	k.LayerNormBackwardInput(c.DIn[0], c.DOut[0], dy, c.In[0], c.Params[0], c.Saved[0], c.Saved[1], n, a.c.Width)
}

func (a *attentionInput) BackwardWeight(k device.Kernels, c *Call) {
	n := c.tokens()
	y := normAgain(k, c, &scratch{c.Work}, n, a.c.Width)
	a.qkv.backwardWeight(k, c.Grads[2], c.Grads[3], c.DOut[1], y, n)
	k.LayerNormBackwardWeight(c.Grads[0], c.Grads[1], c.Stash[0], c.In[0], c.Saved[0], c.Saved[1], n, a.c.Width)
}

func (a *attentionInput) Cost(rows, context int) Cost {
	n := rows * context
	p, e := a.qkv.product(n), float64(n)*float64(a.c.Width)
	return Cost{
		Forward:        p + normFLOPs*e,
		BackwardInput:  p + normBackwardInputFLOPs*e,
		BackwardWeight: p + (normFLOPs+normBackwardWeightFLOPs)*e,
		Bytes:          trafficBytes(a.spec, rows, context),
	}
}

// attentionCore is softmax(q k^T / sqrt(headDim), causal) v by head, without parameters.
//
//	residual, qkv [rows*context, 3*width] -> residual, attended [rows*context, width]
type attentionCore struct{ c GPTConfig }

func (a attentionCore) Spec() Spec {
	return Spec{
		Name: "attention core",
		In:   []Port{a.c.stream(), a.c.qkv()},
		Out:  []Port{a.c.stream(), a.c.attended()},
		// The log of the sum of exponentials of each row of scores, [rows, heads, context].
		Saved: []Port{{Name: "lse", PerToken: a.c.Heads, Float: true}},
		Sums:  a.sums,
	}
}

// sums is those over headDim of attended times its gradient, [rows, heads, context] (Dao 2023, section 2.3): all
// that AttentionBackward needs on any device.
func (a attentionCore) sums(rows, context int) int { return rows * a.c.Heads * context }

func (a attentionCore) shape(rows, context int) device.AttentionShape {
	return device.AttentionShape{Batch: rows, Tokens: context, Heads: a.c.Heads, HeadDim: a.c.Width / a.c.Heads}
}

func (a attentionCore) Forward(k device.Kernels, c *Call) {
	k.Attention(c.Out[1], c.Saved[0], c.In[1], a.shape(c.Rows, c.Context))
	k.Copy(c.Out[0], c.In[0])
}

func (a attentionCore) BackwardInput(k device.Kernels, c *Call) {
	k.AttentionBackward(c.DIn[1], c.DOut[1], c.Out[1], c.Saved[0], c.In[1], c.Sums, a.shape(c.Rows, c.Context))
	k.Copy(c.DIn[0], c.DOut[0])
}

func (a attentionCore) BackwardWeight(device.Kernels, *Call) {}

func (a attentionCore) Cost(rows, context int) Cost {
	// Pairs of a query and a key that it sees; both products take 2 headDim operations a pair and head.
	pairs := float64(rows) * float64(context) * float64(context+1) / 2
	forward := pairs * (4*float64(a.c.Width) + softmaxFLOPs*float64(a.c.Heads))
	// Backward makes the scores again and has four products more (Dao 2023, section 2.3).
	backward := pairs * (10*float64(a.c.Width) + softmaxFLOPs*float64(a.c.Heads))
	return Cost{Forward: forward, BackwardInput: backward, Bytes: trafficBytes(a.Spec(), rows, context)}
}

// attentionOutput is the output projection, dropout and the addition to the residual stream.
//
//	residual, attended [rows*context, width] -> residual [rows*context, width]
type attentionOutput struct {
	c    GPTConfig
	proj linear
	spec Spec
}

func newAttentionOutput(c GPTConfig, block string) *attentionOutput {
	return &attentionOutput{c, linear{c.Width, c.Width}, Spec{
		Name: "attention output",
		Params: []Param{
			matrix(block+".attention.projection.weight", c.Width, c.Width, c.residualStd()),
			vector(block+".attention.projection.bias", c.Width, Zeros),
		},
		In:    []Port{c.stream(), c.attended()},
		Out:   []Port{c.stream()},
		Stash: c.branchGrad(),
	}}
}

func (a *attentionOutput) Spec() Spec { return a.spec }

func (a *attentionOutput) Forward(k device.Kernels, c *Call) {
	a.proj.forward(k, c.Out[0], c.In[1], c.Params[0], c.Params[1], c.tokens())
	k.Dropout(c.Out[0], c.In[0], c.Out[0], a.c.branchMask(c, siteAttention))
}

func (a *attentionOutput) BackwardInput(k device.Kernels, c *Call) {
	dy := a.c.maskBranch(k, c, siteAttention)
	a.proj.backwardInput(k, c.DIn[1], dy, c.Params[0], c.tokens())
	k.Copy(c.DIn[0], c.DOut[0])
}

func (a *attentionOutput) BackwardWeight(k device.Kernels, c *Call) {
	a.proj.backwardWeight(k, c.Grads[0], c.Grads[1], a.c.maskedBranch(c), c.In[1], c.tokens())
}

func (a *attentionOutput) Cost(rows, context int) Cost {
	n := rows * context
	p, e := a.proj.product(n), float64(n)*float64(a.c.Width)
	return Cost{
		Forward:        p + (a.c.dropoutFLOPs()+2)*e,
		BackwardInput:  p + a.c.dropoutFLOPs()*e,
		BackwardWeight: p + e,
		Bytes:          trafficBytes(a.spec, rows, context),
	}
}
