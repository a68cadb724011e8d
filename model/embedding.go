package model

import "github.com/troupe-train/troupe/device"

// embedding is x = dropout(tokens[token] + positions[position]), [rows, context, width].
type embedding struct {
	c    GPTConfig
	spec Spec
}

func newEmbedding(c GPTConfig) *embedding {
	return &embedding{c, Spec{
		Name:   "embedding",
		Tokens: true,
		Params: []Param{c.tokenTable(), matrix("embed.positions", c.Context, c.Width, c.initStd())},
		Out:    []Port{c.stream()},
		// The masked gradient of the sum, in BackwardWeight.
		Work: func(rows, context int) int {
			if c.Dropout == 0 {
				return 0
			}
			return rows * context * c.Width
		},
	}}
}

func (e *embedding) Spec() Spec { return e.spec }

func (e *embedding) Forward(k device.Kernels, c *Call) {
	x := c.Out[0]
	k.Embed(x, c.Tokens, c.Params[0], c.Params[1], c.Rows, c.Context, e.c.Width)
	if d := e.mask(c); d.P > 0 {
		k.Dropout(x, device.Slice{}, x, d)
	}
}

// BackwardInput has nothing to do: tokens have no gradient.
func (e *embedding) BackwardInput(device.Kernels, *Call) {}

func (e *embedding) BackwardWeight(k device.Kernels, c *Call) {
	k.EmbedBackward(c.Grads[0], c.Grads[1], e.masked(k, c), c.Tokens, c.Rows, c.Context, e.c.Width)
}

// masked is the gradient of the sum, behind its mask.
func (e *embedding) masked(k device.Kernels, c *Call) device.Slice {
	dx := c.DOut[0]
	d := e.mask(c)
	if d.P == 0 {
		return dx
	}
	masked := c.Work.Sub(0, dx.Len)
	k.Dropout(masked, device.Slice{}, dx, d)
	return masked
}

func (e *embedding) mask(c *Call) device.Dropout {
	return c.dropout(e.c.Dropout, siteEmbedding, c.Context*e.c.Width)
}

func (e *embedding) Cost(rows, context int) Cost {
	n := float64(rows*context) * float64(e.c.Width)
	c := Cost{Forward: n, BackwardWeight: 2 * n}
	if e.c.Dropout > 0 {
		c.Forward += dropoutFLOPs * n
		c.BackwardWeight += dropoutFLOPs * n
	}
	// Forward reads two rows and writes one; backward reads the gradient and writes both tables.
	c.Bytes = elementBytes * (4*n + float64(e.c.Vocab+e.c.Context)*float64(e.c.Width))
	return c
}
