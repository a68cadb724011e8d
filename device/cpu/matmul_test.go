package cpu

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-train/troupe/device"
)

func TestMatMul(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		rapid.Check(t, func(t *rapid.T) {
			dim := rapid.OneOf(rapid.IntRange(0, 9), rapid.IntRange(1, 150))
			p := device.MatMul{
				M: dim.Draw(t, "M"), N: dim.Draw(t, "N"), K: dim.Draw(t, "K"),
				TransA: rapid.Bool().Draw(t, "TransA"), TransB: rapid.Bool().Draw(t, "TransB"),
				Accumulate: rapid.Bool().Draw(t, "Accumulate"),
			}
			lda, ldb, ldc := strides(p)
			pad := func(name string, ld, in *int) {
				if p := rapid.SampledFrom([]int{0, 0, 1, 5}).Draw(t, name); p > 0 {
					*in += p
					*ld = *in
				}
			}
			pad("LDA", &p.LDA, &lda)
			pad("LDB", &p.LDB, &ldb)
			pad("LDC", &p.LDC, &ldc)
			ra, rb := p.M, p.K
			if p.TransA {
				ra = p.K
			}
			if p.TransB {
				rb = p.N
			}
			a, b, c := r.random(ra*lda), r.random(rb*ldb), r.random(p.M*ldc)
			var bias []float64
			if rapid.Bool().Draw(t, "Bias") {
				p.Bias = r.random(p.N)
				bias = values(p.Bias)
			}
			if rapid.Bool().Draw(t, "GELU") {
				p.GELU = r.alloc(p.M * p.N)
			}
			want := refMatMul(values(c), values(a), values(b), bias, p)
			r.do(func(k device.Kernels) { k.MatMul(c, a, b, p) })
			r.near(t, "C", c, want, p.K)
			if !p.GELU.IsZero() {
				r.near(t, "GELU", p.GELU, geluOf(c, p), 4)
			}
		})
	})
}

// geluOf is gelu of the product as C has it.
func geluOf(c device.Slice, p device.MatMul) []float64 {
	_, _, ldc := strides(p)
	var out []float64
	for i, v := range values(c) {
		if i%max(1, ldc) < p.N {
			out = append(out, refGELU(v))
		}
	}
	return out
}

// Shapes that take several chunks of K, several passes over B, and several tiles.
func TestMatMulOfManyBlocks(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		for _, p := range []device.MatMul{
			{M: 3, N: 4000, K: 700},
			{M: 40, N: 100, K: 2100, Accumulate: true},
			{M: 97, N: 192, K: 1030, TransA: true},
			{M: 33, N: 97, K: 1500, TransB: true, Accumulate: true},
			{M: 5, N: 64, K: 1300, LDB: 70},
			{M: 9, N: 75, K: 8000, LDC: 80},
		} {
			_, ldb, ldc := strides(p)
			rows := p.K
			if p.TransB {
				rows = p.N
			}
			a, b, c := r.random(p.M*p.K), r.random(rows*ldb), r.random(p.M*ldc)
			p.Bias, p.GELU = r.random(p.N), r.alloc(p.M*p.N)
			want := refMatMul(values(c), values(a), values(b), values(p.Bias), p)
			r.do(func(k device.Kernels) { k.MatMul(c, a, b, p) })
			r.nearSize(t, "C", c, want, p.K, math.Sqrt(float64(p.K)))
			r.near(t, "GELU", p.GELU, geluOf(c, p), 4)
		}
	})
}

// One sum's order depends on K alone: rows and columns computed apart have the bits of the whole.
func TestMatMulOrderDependsOnKAlone(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		for _, k := range []int{7, 300, 5000, 8000} {
			m, n := 13, 37
			a, b, c, part := r.random(m*k), r.random(k*n), r.alloc(m*n), r.alloc(1)
			r.do(func(k_ device.Kernels) { k_.MatMul(c, a, b, device.MatMul{M: m, N: n, K: k}) })
			for _, at := range [][2]int{{0, 0}, {12, 36}, {5, 20}} {
				r.do(func(k_ device.Kernels) {
					k_.MatMul(part, a.Sub(at[0]*k, k), b.Sub(at[1], (k-1)*n+1), device.MatMul{M: 1, N: 1, K: k, LDB: n})
				})
				if got, want := bitsOf(part)[0], bitsOf(c.Sub(at[0]*n+at[1], 1))[0]; got != want {
					t.Errorf("K %d: element %v alone has bits %#x, in the product %#x", k, at, got, want)
				}
			}
			// Accumulating adds the finished sum.
			old := r.random(m * n)
			sum, want, whole := r.alloc(m*n), r.alloc(m*n), r.stat(m*n)
			r.do(func(k_ device.Kernels) {
				k_.Copy(sum, old)
				k_.MatMul(sum, a, b, device.MatMul{M: m, N: n, K: k, Accumulate: true})
				k_.MatMul(whole, a, b, device.MatMul{M: m, N: n, K: k})
				k_.Add(want, whole, old)
			})
			if !slices.Equal(bitsOf(sum), bitsOf(want)) {
				t.Errorf("K %d: C += AB is not C + (AB)", k)
			}
		}
	})
}
