package cpu

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-train/troupe/device"
)

// floats runs a test for all types of tensors, float32 and bfloat16 at every level of this processor.
func floats(t *testing.T, f func(t *testing.T, r *rig)) {
	for _, level := range Levels() {
		t.Run("f32/"+level.String(), func(t *testing.T) { f(t, newRigAt(t, device.F32, level, 2)) })
		t.Run("bf16/"+level.String(), func(t *testing.T) { f(t, newRigAt(t, device.BF16, level, 2)) })
	}
	t.Run("f64", func(t *testing.T) { f(t, newRig(t, device.F64, 2)) })
}

// near fails unless got is want within rounding: terms is how many numbers of about the size of
// size were added. NaN and infinities must be where they are expected.
func (r *rig) near(t failer, what string, got device.Slice, want []float64, terms int) {
	t.Helper()
	r.nearSize(t, what, got, want, terms, 1)
}

func (r *rig) nearSize(t failer, what string, got device.Slice, want []float64, terms int, size float64) {
	t.Helper()
	g := values(got)
	if len(g) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(g), len(want))
	}
	unit := 0x1p-23
	if got.Type == device.F64 && r.d.Float() == device.F64 {
		unit = 0x1p-52
	}
	for i := range g {
		bound := 8 * unit * math.Sqrt(float64(terms+4)) * math.Max(size, math.Abs(want[i]))
		if got.Type == device.BF16 { // rounded once more
			bound += 0x1p-8 * math.Abs(want[i])
		}
		if math.IsNaN(want[i]) != math.IsNaN(g[i]) || g[i] != want[i] && !math.IsNaN(g[i]) && !(math.Abs(g[i]-want[i]) <= bound) {
			t.Fatalf("%s[%d] = %v, want %v within %.2g", what, i, g[i], want[i], bound)
		}
	}
}

// length draws a number of elements with the edges of vectors and tiles in it.
func length(t *rapid.T, name string) int {
	return rapid.OneOf(rapid.IntRange(0, 40), rapid.SampledFrom([]int{63, 64, 65, 2047, 2048, 2049, 8191, 8192, 8193, 20000})).Draw(t, name)
}

func small(t *rapid.T, name string) int {
	return rapid.OneOf(rapid.IntRange(1, 9), rapid.IntRange(1, 70)).Draw(t, name)
}

func TestElementwise(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		rapid.Check(t, func(t *rapid.T) {
			n := length(t, "n")
			a, b, y := r.random(n), r.random(n), r.alloc(n)
			va, vb := values(a), values(b)
			want := make([]float64, n)
			r.do(func(k device.Kernels) { k.Add(y, a, b) })
			for i := range want {
				want[i] = va[i] + vb[i]
			}
			r.near(t, "Add", y, want, 1)
			r.do(func(k device.Kernels) { k.Fill(y, 0.25) })
			for i := range want {
				want[i] = 0.25
			}
			r.near(t, "Fill", y, want, 0)
			r.do(func(k device.Kernels) { k.GELU(y, a) })
			for i := range want {
				want[i] = refGELU(va[i])
			}
			r.near(t, "GELU", y, want, 4)
			r.do(func(k device.Kernels) { k.GELUBackward(y, b, a) })
			for i := range want {
				want[i] = vb[i] * refGELUSlope(va[i])
			}
			r.nearSize(t, "GELUBackward", y, want, 4, 4)
			r.do(func(k device.Kernels) { k.Copy(y, b); k.GELUBackward(y, y, a) })
			r.nearSize(t, "GELUBackward in place", y, want, 4, 4)
			bytes := make([]byte, b.Bytes())
			r.do(func(k device.Kernels) { k.Download(bytes, b); k.Upload(y, bytes); k.Add(b, a, b) })
			r.near(t, "Upload", y, vb, 0)
			for i := range want {
				want[i] = va[i] + vb[i]
			}
			r.near(t, "Add in place", b, want, 1)
		})
	})
}

func TestGELUOverItsRange(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		var x, y, slope []float64
		for v := -20.0; v <= 20; v += 1.0 / 64 {
			x = append(x, v)
		}
		in, out, one := r.of(x), r.alloc(len(x)), r.alloc(len(x))
		for _, v := range values(in) {
			y, slope = append(y, refGELU(v)), append(slope, refGELUSlope(v))
		}
		r.do(func(k device.Kernels) { k.GELU(out, in) })
		r.near(t, "GELU", out, y, 1)
		r.do(func(k device.Kernels) { k.Fill(one, 1); k.GELUBackward(out, one, in) })
		r.nearSize(t, "GELUBackward", out, slope, 1, 4)
	})
}

func TestDropout(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		rapid.Check(t, func(t *rapid.T) {
			d := device.Dropout{
				P:      rapid.SampledFrom([]float64{0, 0.1, 0.5, 0.999}).Draw(t, "P"),
				Key:    rapid.Uint64().Draw(t, "Key"),
				Sample: rapid.Uint64Range(0, 1<<40).Draw(t, "Sample"),
				// Samples of 1101 are cut by the edge of a tile inside a block of random numbers.
				PerSample: rapid.OneOf(rapid.IntRange(1, 300), rapid.Just(1101)).Draw(t, "PerSample"),
			}
			n := rapid.IntRange(0, 12).Draw(t, "samples") * d.PerSample
			x, y := r.random(n), r.alloc(n)
			var residual device.Slice
			var rv []float64
			if rapid.Bool().Draw(t, "residual") {
				residual = r.random(n)
				rv = values(residual)
			}
			want := refDropout(rv, values(x), d)
			out := rapid.SampledFrom([]device.Slice{y, x}).Draw(t, "y")
			r.do(func(k device.Kernels) { k.Dropout(out, residual, x, d) })
			r.near(t, "Dropout", out, want, 1)
		})
	})
}

// A mask must not depend on how a batch is cut.
func TestDropoutOfASampleIsTheSameAlone(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		d := device.Dropout{P: 0.3, Key: 5, Sample: 10, PerSample: 1001}
		x, y, part := r.random(4*1001), r.alloc(4*1001), r.alloc(1001)
		r.do(func(k device.Kernels) { k.Dropout(y, device.Slice{}, x, d) })
		for s := range 4 {
			d.Sample = 10 + uint64(s)
			r.do(func(k device.Kernels) { k.Dropout(part, device.Slice{}, x.Sub(s*1001, 1001), d) })
			if !slices.Equal(bitsOf(part), bitsOf(y.Sub(s*1001, 1001))) {
				t.Errorf("sample %d has another mask alone", s)
			}
		}
		zeros := 0
		for _, v := range values(y) {
			if v == 0 {
				zeros++
			}
		}
		if share := float64(zeros) / 4004; math.Abs(share-0.3) > 0.03 {
			t.Errorf("%.3f of the elements are dropped, want 0.3", share)
		}
	})
}

func TestLayerNorm(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		rapid.Check(t, func(t *rapid.T) {
			rows, width := rapid.IntRange(0, 30).Draw(t, "rows"), small(t, "width")
			n := rows * width
			x, gain, bias, dy := r.random(n), r.random(width), r.random(width), r.random(n)
			y, mean, rstd := r.alloc(n), r.stat(rows), r.stat(rows)
			r.do(func(k device.Kernels) { k.LayerNorm(y, mean, rstd, x, gain, bias, rows, width) })
			wy, wm, ws := refNorm(values(x), values(gain), values(bias), rows, width)
			// A row of nearly equal elements has a large rstd, which enlarges the rounding of x.
			size := 1.0
			for _, s := range ws {
				size = math.Max(size, 4*s)
			}
			r.nearSize(t, "y", y, wy, width, size)
			r.near(t, "mean", mean, wm, width)
			r.nearSize(t, "rstd", rstd, ws, width, size*size*size)

			dx, residual, dgain, dbias := r.alloc(n), r.random(n), r.stat(width), r.stat(width)
			wx, wg, wb := refNormBackward(values(dy), values(x), values(gain), values(mean), values(rstd), rows, width)
			r.do(func(k device.Kernels) {
				k.LayerNormBackwardInput(dx, device.Slice{}, dy, x, gain, mean, rstd, rows, width)
				k.LayerNormBackwardWeight(dgain, dbias, dy, x, mean, rstd, rows, width)
			})
			r.nearSize(t, "dx", dx, wx, width, 4*size*size)
			r.nearSize(t, "dgain", dgain, wg, rows, 4*size)
			r.nearSize(t, "dbias", dbias, wb, rows, 4)
			for i, v := range values(residual) {
				wx[i] += v
			}
			r.do(func(k device.Kernels) {
				k.LayerNormBackwardInput(residual, residual, dy, x, gain, mean, rstd, rows, width)
			})
			r.nearSize(t, "dx + residual in place", residual, wx, width, 4*size*size)
		})
	})
}

func TestEmbed(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		rapid.Check(t, func(t *rapid.T) {
			rows, context, width := rapid.IntRange(0, 4).Draw(t, "rows"), small(t, "context"), small(t, "width")
			vocab, held := rapid.IntRange(1, 9).Draw(t, "vocab"), context+rapid.IntRange(0, 3).Draw(t, "more")
			n := rows * context
			ids := rapid.SliceOfN(rapid.Int32Range(0, int32(vocab-1)), n, n).Draw(t, "tokens")
			table, positions, y, dy := r.random(vocab*width), r.random(held*width), r.alloc(n*width), r.random(n*width)
			tokens, dtable, dpositions := r.ints(ids), r.stat(vocab*width), r.stat(held*width)
			r.do(func(k device.Kernels) {
				k.Embed(y, tokens, table, positions, rows, context, width)
				k.EmbedBackward(dtable, dpositions, dy, tokens, rows, context, width)
			})
			wy, wt, wp := make([]float64, n*width), make([]float64, vocab*width), make([]float64, held*width)
			vt, vp, vd := values(table), values(positions), values(dy)
			for i, id := range ids {
				for j := range width {
					wy[i*width+j] = vt[int(id)*width+j] + vp[i%context*width+j]
					wt[int(id)*width+j] += vd[i*width+j]
					wp[i%context*width+j] += vd[i*width+j]
				}
			}
			r.near(t, "y", y, wy, 1)
			r.nearSize(t, "dtable", dtable, wt, n, 4)
			r.nearSize(t, "dpositions", dpositions, wp, rows, 4)
		})
	})
}

func TestCrossEntropy(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		rapid.Check(t, func(t *rapid.T) {
			tokens, vocab := rapid.IntRange(0, 20).Draw(t, "tokens"), rapid.OneOf(rapid.IntRange(1, 9), rapid.IntRange(1, 700)).Draw(t, "vocab")
			ids := rapid.SliceOfN(rapid.Int32Range(0, int32(vocab-1)), tokens, tokens).Draw(t, "targets")
			scale := rapid.SampledFrom([]float64{1, 1.0 / 64, 3}).Draw(t, "scale")
			logits, targets := r.random(tokens*vocab), r.ints(ids)
			loss, lse, d := r.stat(tokens), r.stat(tokens), r.alloc(tokens*vocab)
			r.do(func(k device.Kernels) {
				k.CrossEntropy(loss, lse, logits, targets, tokens, vocab)
				k.CrossEntropyBackward(d, logits, lse, targets, tokens, vocab, scale)
			})
			wl, we, p := refEntropy(values(logits), ids, vocab)
			r.nearSize(t, "loss", loss, wl, vocab, 4)
			r.nearSize(t, "lse", lse, we, vocab, 4)
			for i := range p {
				if int(ids[i/vocab]) == i%vocab {
					p[i]--
				}
				p[i] *= scale
			}
			r.nearSize(t, "dlogits", d, p, vocab, 4*scale)
		})
	})
}

func TestSums(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		rapid.Check(t, func(t *rapid.T) {
			rows, cols := rapid.IntRange(0, 40).Draw(t, "rows"), rapid.IntRange(1, 200).Draw(t, "cols")
			src, dst := r.random(rows*cols), r.stat(cols)
			r.do(func(k device.Kernels) { k.SumRows(dst, src, rows, cols) })
			want := make([]float64, cols)
			for i, v := range values(src) {
				want[i%cols] += v
			}
			r.nearSize(t, "SumRows", dst, want, rows, 4)

			// Sum and SumSquares are exactly the ascending sum in float64.
			x := r.randomStat(length(t, "n"))
			block := rapid.IntRange(1, 3000).Draw(t, "block")
			sum, squares := r.allocOf(device.F64, 1), r.allocOf(device.F64, (x.Len+block-1)/block)
			r.do(func(k device.Kernels) { k.Sum(sum, x); k.SumSquares(squares, x, block) })
			var ws float64
			wq := make([]float64, squares.Len)
			for i, v := range values(x) {
				ws += v
				wq[i/block] += v * v
			}
			if got := Float64s(sum)[0]; got != ws {
				t.Fatalf("Sum = %v, want %v", got, ws)
			}
			if got := Float64s(squares); !slices.Equal(got, wq) {
				t.Fatalf("SumSquares = %v, want %v", got, wq)
			}
		})
	})
}

func TestOptimizers(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		rapid.Check(t, func(t *rapid.T) {
			n := length(t, "n")
			h := device.AdamW{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, Decay: rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "decay"),
				Step: rapid.IntRange(1, 1000).Draw(t, "step"), GradScale: rapid.SampledFrom([]float64{1, 0.125}).Draw(t, "scale")}
			w, m, v, g := r.randomStat(n), r.randomStat(n), r.randomStat(n), r.randomStat(n)
			vv := values(v)
			for i := range vv {
				vv[i] *= vv[i]
			}
			v = r.statOf(vv)
			next, m2, v2 := r.stat(n), r.stat(n), r.stat(n)
			r.do(func(k device.Kernels) { k.AdamW(next, m2, v2, w, m, v, g, h) })
			wn, wm, wv := refAdamW(values(w), values(m), values(v), values(g), h)
			r.near(t, "next", next, wn, 4)
			r.near(t, "m", m2, wm, 4)
			r.near(t, "v", v2, wv, 4)
			r.do(func(k device.Kernels) { k.AdamW(w, m, v, w, m, v, g, h) })
			for _, s := range [][2]device.Slice{{w, next}, {m, m2}, {v, v2}} {
				if !slices.Equal(bitsOf(s[0]), bitsOf(s[1])) {
					t.Fatal("AdamW in place gives other bits")
				}
			}

			s := device.SGD{LR: 0.1, Momentum: 0.9, Decay: h.Decay, GradScale: h.GradScale}
			vw, vm, vg := values(w), values(m), values(g)
			for i := range vw {
				wm[i] = s.Momentum*vm[i] + s.GradScale*vg[i]
				wn[i] = vw[i] - s.LR*(wm[i]+s.Decay*vw[i])
			}
			r.do(func(k device.Kernels) { k.SGD(next, m2, w, m, g, s) })
			r.near(t, "SGD next", next, wn, 4)
			r.near(t, "SGD m", m2, wm, 4)
		})
	})
}

func TestFillOfOtherTypes(t *testing.T) {
	r := newRig(t, device.F32, 1)
	i, d := r.allocOf(device.I32, 5), r.allocOf(device.F64, 5)
	r.do(func(k device.Kernels) { k.Fill(i, -3); k.Fill(d, 0.1); k.Add(d, d, d) })
	if got := fmt.Sprint(Int32s(i), Float64s(d)); got != "[-3 -3 -3 -3 -3] [0.2 0.2 0.2 0.2 0.2]" {
		t.Error(got)
	}
}

// TestAdamWPastCaches: a step of many elements writes past the caches where memory is aligned, with the bits of one
// that does not.
func TestAdamWPastCaches(t *testing.T) {
	for _, level := range Levels() {
		r := newRigAt(t, device.F32, level, 2)
		const n = pastCaches + 8192 + 37
		h := device.AdamW{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, Decay: 0.1, Step: 3, GradScale: 0.5}
		w, m, v, g := r.randomStat(n), r.randomStat(n), r.randomStat(n), r.randomStat(n)
		squares := values(v)
		for i := range squares {
			squares[i] *= squares[i]
		}
		v = r.statOf(squares)
		next, m2, v2 := r.stat(n), r.stat(n), r.stat(n)
		want, wantM, wantV := r.stat(n), r.stat(n), r.stat(n)
		r.do(func(k device.Kernels) {
			k.AdamW(next, m2, v2, w, m, v, g, h)
			for lo := 0; lo < n; lo += 1000 { // too few to go past the caches, and not aligned
				part := func(s device.Slice) device.Slice { return s.Sub(lo, min(1000, n-lo)) }
				k.AdamW(part(want), part(wantM), part(wantV), part(w), part(m), part(v), part(g), h)
			}
		})
		for _, x := range [][2]device.Slice{{next, want}, {m2, wantM}, {v2, wantV}} {
			if !slices.Equal(x[0].HostBytes(), x[1].HostBytes()) {
				t.Errorf("%s: other bits", level)
			}
		}
	}
}
