package model

import "github.com/troupe-train/troupe/device"

// linear is the affine map y = x w^T + b of n rows; w is [out, in], b is [out], x is [n, in], y is [n, out].
type linear struct{ in, out int }

func (l linear) forward(k device.Kernels, y, x, w, b device.Slice, n int) {
	k.MatMul(y, x, w, device.MatMul{M: n, N: l.out, K: l.in, TransB: true, Bias: b})
}

// backwardInput is dx = dy w.
func (l linear) backwardInput(k device.Kernels, dx, dy, w device.Slice, n int) {
	k.MatMul(dx, dy, w, device.MatMul{M: n, N: l.in, K: l.out})
}

// backwardWeight is dw = dy^T x, and db = the sum of the rows of dy unless db is zero.
func (l linear) backwardWeight(k device.Kernels, dw, db, dy, x device.Slice, n int) {
	k.MatMul(dw, dy, x, device.MatMul{M: l.out, N: l.in, K: n, TransA: true})
	if !db.IsZero() {
		k.SumRows(db, dy, n, l.out)
	}
}

// dropout returns the mask of a site of this call: a pure function of (seed, step, layer, site,
// sample, element). A sample has perSample elements.
func (c *Call) dropout(p float64, site uint64, perSample int) device.Dropout {
	if !c.Training {
		p = 0
	}
	return device.Dropout{P: p, Key: DropoutKey(c.Seed, c.Step, c.Layer, site), Sample: uint64(c.Sample), PerSample: perSample}
}

// tokens is the number of tokens of the micro-batch.
func (c *Call) tokens() int { return c.Rows * c.Context }

// scratch hands out parts of a call's Work, one after the other.
type scratch struct{ rest device.Slice }

func (s *scratch) take(n int) device.Slice {
	t := s.rest.Sub(0, n)
	s.rest = s.rest.Sub(n, s.rest.Len-n)
	return t
}
