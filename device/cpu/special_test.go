package cpu

import (
	"math"
	"testing"

	"github.com/troupe-train/troupe/device"
)

// A bad number must come out where it goes in, and nowhere else: NaN has to be found at the
// operation that made it, not hidden by a maximum or a padded tile.
func TestNaNAndInfinityPropagate(t *testing.T) {
	const rows, width = 5, 37
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		floats(t, func(t *testing.T, r *rig) {
			for _, at := range []int{0, 17, 36} {
				spoilt := func(n, i int) device.Slice {
					s := r.random(n)
					v := values(s)
					v[i] = bad
					return r.of(v)
				}
				x := spoilt(rows*width, 2*width+at)
				clean := r.random(rows * width)
				check := func(what string, s device.Slice, perRow int, want func(row, col int) bool) {
					t.Helper()
					for i, v := range values(s) {
						isBad := math.IsNaN(v) || math.IsInf(v, 0)
						if isBad != want(i/perRow, i%perRow) {
							t.Errorf("%s with %v at (2,%d): element (%d,%d) is %v", what, bad, at, i/perRow, i%perRow, v)
							return
						}
					}
				}
				row := func(r, _ int) bool { return r == 2 }
				col := func(_, c int) bool { return c == at }
				one := func(r, c int) bool { return r == 2 && c == at }

				w, c := r.random(width*19), r.alloc(rows*19)
				r.do(func(k device.Kernels) { k.MatMul(c, x, w, device.MatMul{M: rows, N: 19, K: width}) })
				check("MatMul A", c, 19, row)
				d := r.alloc(19 * width)
				r.do(func(k device.Kernels) {
					k.MatMul(d, r.random(19*rows), x, device.MatMul{M: 19, N: width, K: rows})
				})
				check("MatMul B", d, width, col)

				y, v := r.alloc(rows*width), r.stat(width)
				r.do(func(k device.Kernels) { k.Add(y, x, clean) })
				check("Add", y, width, one)
				r.do(func(k device.Kernels) { k.SumRows(v, x, rows, width) })
				check("SumRows", v, width, col)
				gain := r.random(width)
				mean, rstd := r.stat(rows), r.stat(rows)
				r.do(func(k device.Kernels) { k.LayerNorm(y, mean, rstd, x, gain, gain, rows, width) })
				check("LayerNorm", y, width, row)
				if math.IsNaN(bad) { // 1/rms of a row with an infinity is 0, and silu has limits
					r.do(func(k device.Kernels) { k.RMSNorm(y, rstd, x, gain, rows, width) })
					check("RMSNorm", y, width, row)
					gates, d, g := r.alloc(2*rows*width), r.alloc(2*rows*width), spoilt(2*rows*width, 2*2*width+at)
					r.do(func(k device.Kernels) {
						k.SwiGLU(y, g, rows, width)
						k.SwiGLUBackward(d, clean, g, rows, width)
						k.SwiGLUBackward(gates, x, r.random(2*rows*width), rows, width)
					})
					check("SwiGLU gate", y, width, one)
					both := func(r, c int) bool { return r == 2 && c%width == at }
					check("SwiGLUBackward gate", d, 2*width, both)
					check("SwiGLUBackward dy", gates, 2*width, both)
				}
				r.do(func(k device.Kernels) { k.SwiGLU(y, spoilt(2*rows*width, 2*2*width+width+at), rows, width) })
				check("SwiGLU up", y, width, one)
				r.do(func(k device.Kernels) { k.RMSNormBackwardWeight(v, x, clean, r.randomStat(rows), rows, width) })
				check("RMSNormBackwardWeight", v, width, col)
				turned := r.alloc(3 * rows * 74)
				r.do(func(k device.Kernels) {
					k.RoPE(turned, spoilt(3*rows*74, 2*3*74+at), device.AttentionShape{Batch: 1, Tokens: rows, Heads: 1, HeadDim: 74})
				})
				check("RoPE", turned, 3*74, func(r, c int) bool { return r == 2 && (c == at || c == at+37) })
				if !math.IsInf(bad, 0) { // gelu(+inf) is inf, gelu(-inf) and slopes have limits
					r.do(func(k device.Kernels) { k.GELU(y, x) })
					check("GELU", y, width, one)
					r.do(func(k device.Kernels) { k.GELUBackward(y, clean, x) })
					check("GELUBackward", y, width, one)
				}
				r.do(func(k device.Kernels) { k.GELUBackward(y, x, clean) })
				check("GELUBackward dy", y, width, one)
				if !math.IsInf(bad, -1) { // a logit of -inf is a probability of 0
					loss, lse, ids := r.stat(rows), r.stat(rows), r.ints(make([]int32, rows))
					r.do(func(k device.Kernels) { k.CrossEntropy(loss, lse, x, ids, rows, width) })
					check("CrossEntropy", lse, 1, row)
				}
				wide := r.statOf(values(x))
				sum, sq := r.allocOf(device.F64, 1), r.allocOf(device.F64, rows)
				r.do(func(k device.Kernels) { k.Sum(sum, wide); k.SumSquares(sq, wide, width) })
				check("Sum", sum, 1, func(int, int) bool { return true })
				check("SumSquares", sq, 1, row)
				m, vv, next, w1 := r.stat(rows*width), r.stat(rows*width), r.stat(rows*width), r.randomStat(rows*width)
				zero := r.statOf(make([]float64, rows*width))
				r.do(func(k device.Kernels) {
					k.AdamW(next, m, vv, w1, zero, zero, wide, device.AdamW{LR: 1, Beta1: 0.9, Beta2: 0.9, Epsilon: 1e-8, Step: 1, GradScale: 1})
				})
				check("AdamW", next, width, one)

				// The value of token 2 spoils it and what comes after it; the query only itself.
				s := device.AttentionShape{Batch: 1, Tokens: rows, Heads: 1, HeadDim: width}
				o, lse := r.alloc(rows*width), r.stat(rows)
				r.do(func(k device.Kernels) {
					k.Attention(o, lse, spoilt(3*rows*width, 2*3*width+2*width+at), s)
				})
				check("Attention v", o, width, func(r, c int) bool { return r >= 2 && c == at })
				r.do(func(k device.Kernels) { k.Attention(o, lse, spoilt(3*rows*width, 2*3*width+at), s) })
				check("Attention q", o, width, row)
			}
		})
	}
}
