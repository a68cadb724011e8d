package model

import "github.com/troupe-train/troupe/device"

// rmsSaved is the statistic of an RMS norm. Its output is made again where it is needed.
var rmsSaved = []Port{{Name: "rstd", PerToken: 1, Float: true}}

// rmsSums is the scratch memory for the statistic that rmsAgain makes a second time.
func rmsSums(rows, context int) int { return rows * context }

// rmsAgain makes the output of the RMS norm of c.In[0] by c.Params[0] again, the same bits as in Forward. It is
// [n, width] and lies in w.
func rmsAgain(k device.Kernels, c *Call, w *scratch, n, width int) device.Slice {
	y := w.take(n * width)
	k.RMSNorm(y, c.Sums.Sub(0, n), c.In[0], c.Params[0], n, width)
	return y
}

// rmsLinear is an RMS norm and a product without bias: the start of attention, and the logits.
//
//	residual [rows*context, width] -> (residual,) product [rows*context, out]
//
// The residual stream is passed on where the model goes on with it.
type rmsLinear struct {
	width  int
	linear linear
	passes bool
	spec   Spec
}

// newRMSLinear: the rows of weight give the elements of out.
func newRMSLinear(c GPTConfig, name, gain string, weight Param, out Port, passes bool) *rmsLinear {
	ports := []Port{out}
	if passes {
		ports = []Port{c.stream(), out}
	}
	return &rmsLinear{c.Width, linear{c.Width, out.PerToken}, passes, Spec{
		Name:   name,
		Params: []Param{vector(gain, c.Width, Ones), weight},
		In:     []Port{c.stream()},
		Out:    ports,
		Saved:  rmsSaved,
		Stash:  []Port{c.normGrad()},
		Work:   func(rows, context int) int { return rows * context * c.Width },
		Sums:   rmsSums,
	}}
}

func (l *rmsLinear) Spec() Spec { return l.spec }

// last is the product among the slices of the ports of Out.
func last(s []device.Slice) device.Slice { return s[len(s)-1] }

func (l *rmsLinear) Forward(k device.Kernels, c *Call) {
	n := c.tokens()
	y := c.Work.Sub(0, n*l.width)
	k.RMSNorm(y, c.Saved[0], c.In[0], c.Params[0], n, l.width)
	l.linear.forward(k, last(c.Out), y, c.Params[1], device.Slice{}, n)
	if l.passes {
		k.Copy(c.Out[0], c.In[0])
	}
}

func (l *rmsLinear) BackwardInput(k device.Kernels, c *Call) {
	n, dy := c.tokens(), c.Stash[0]
	l.linear.backwardInput(k, dy, last(c.DOut), c.Params[1], n)
	var residual device.Slice
	if l.passes {
		residual = c.DOut[0]
	}
	k.RMSNormBackwardInput(c.DIn[0], residual, dy, c.In[0], c.Params[0], c.Saved[0], n, l.width)
}

func (l *rmsLinear) BackwardWeight(k device.Kernels, c *Call) {
	n := c.tokens()
	y := rmsAgain(k, c, &scratch{c.Work}, n, l.width)
	l.linear.backwardWeight(k, c.Grads[1], device.Slice{}, last(c.DOut), y, n)
	k.RMSNormBackwardWeight(c.Grads[0], c.Stash[0], c.In[0], c.Saved[0], n, l.width)
}

func (l *rmsLinear) Cost(rows, context int) Cost {
	n := rows * context
	p, e := l.linear.product(n), float64(n)*float64(l.width)
	return Cost{
		Forward:        p + rmsFLOPs*e,
		BackwardInput:  p + rmsBackwardInputFLOPs*e,
		BackwardWeight: p + (rmsFLOPs+rmsBackwardWeightFLOPs)*e,
		Bytes:          trafficBytes(l.spec, rows, context),
	}
}

// tokenEmbedding is x = dropout(tokens[token]), [rows, context, width].
type tokenEmbedding struct{ embedding }

func newTokenEmbedding(c GPTConfig) *tokenEmbedding {
	e := newEmbedding(c)
	e.spec.Params = e.spec.Params[:1]
	return &tokenEmbedding{*e}
}

func (e *tokenEmbedding) Forward(k device.Kernels, c *Call) {
	x := c.Out[0]
	k.Embed(x, c.Tokens, c.Params[0], device.Slice{}, c.Rows, c.Context, e.c.Width)
	if d := e.mask(c); d.P > 0 {
		k.Dropout(x, device.Slice{}, x, d)
	}
}

func (e *tokenEmbedding) BackwardWeight(k device.Kernels, c *Call) {
	k.EmbedBackward(c.Grads[0], device.Slice{}, e.masked(k, c), c.Tokens, c.Rows, c.Context, e.c.Width)
}

func (e *tokenEmbedding) Cost(rows, context int) Cost {
	c := e.embedding.Cost(rows, context)
	// No row of positions is read, added or written.
	n := float64(rows*context) * float64(e.c.Width)
	c.Forward -= n
	c.BackwardWeight -= n
	c.Bytes -= elementBytes * (n + float64(e.c.Context)*float64(e.c.Width))
	return c
}
