package cpu

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-train/troupe/device"
)

func refRMSNorm(x, gain []float64, rows, width int) (y, rstd []float64) {
	y = make([]float64, rows*width)
	for r := range rows {
		var v float64
		for _, e := range x[r*width : (r+1)*width] {
			v += e * e / float64(width)
		}
		s := 1 / math.Sqrt(v+1e-5)
		for j := range width {
			y[r*width+j] = x[r*width+j] * s * gain[j]
		}
		rstd = append(rstd, s)
	}
	return y, rstd
}

// refRMSNormBackward adds up the derivative of every output of a row by every input: d rstd / d x[j] is
// -rstd^3 x[j] / width.
func refRMSNormBackward(dy, x, gain, rstd []float64, rows, width int) (dx, dgain []float64) {
	dx, dgain = make([]float64, rows*width), make([]float64, width)
	for r := range rows {
		s := rstd[r]
		for j := range width {
			e := r*width + j
			dgain[j] += dy[e] * x[e] * s
			dx[e] += dy[e] * gain[j] * s
			for i := range width {
				dx[e] -= dy[r*width+i] * gain[i] * x[r*width+i] * s * s * s * x[e] / float64(width)
			}
		}
	}
	return dx, dgain
}

func TestRMSNorm(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		rapid.Check(t, func(t *rapid.T) {
			rows, width := rapid.IntRange(0, 30).Draw(t, "rows"), small(t, "width")
			n := rows * width
			x, gain, dy := r.random(n), r.random(width), r.random(n)
			y, rstd := r.alloc(n), r.stat(rows)
			r.do(func(k device.Kernels) { k.RMSNorm(y, rstd, x, gain, rows, width) })
			wy, ws := refRMSNorm(values(x), values(gain), rows, width)
			size := 1.0
			for _, s := range ws {
				size = math.Max(size, 4*s)
			}
			r.nearSize(t, "y", y, wy, width, size)
			r.nearSize(t, "rstd", rstd, ws, width, size)

			dx, residual, dgain := r.alloc(n), r.random(n), r.stat(width)
			wx, wg := refRMSNormBackward(values(dy), values(x), values(gain), values(rstd), rows, width)
			r.do(func(k device.Kernels) {
				k.RMSNormBackwardInput(dx, device.Slice{}, dy, x, gain, rstd, rows, width)
				k.RMSNormBackwardWeight(dgain, dy, x, rstd, rows, width)
			})
			r.nearSize(t, "dx", dx, wx, width, 4*size*size)
			r.nearSize(t, "dgain", dgain, wg, rows, 4*size)
			for i, v := range values(residual) {
				wx[i] += v
			}
			r.do(func(k device.Kernels) { k.RMSNormBackwardInput(residual, residual, dy, x, gain, rstd, rows, width) })
			r.nearSize(t, "dx + residual in place", residual, wx, width, 4*size*size)
		})
	})
}

func TestSwiGLU(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		rapid.Check(t, func(t *rapid.T) {
			rows, width := rapid.IntRange(0, 30).Draw(t, "rows"), small(t, "width")
			scale := rapid.SampledFrom([]float64{0.1, 1, 30}).Draw(t, "scale")
			in := values(r.random(2 * rows * width))
			for i := range in {
				in[i] *= scale
			}
			x, dy := r.of(in), r.random(rows*width)
			y, dx := r.alloc(rows*width), r.alloc(2*rows*width)
			r.do(func(k device.Kernels) { k.SwiGLU(y, x, rows, width); k.SwiGLUBackward(dx, dy, x, rows, width) })
			vx, vd := values(x), values(dy)
			wy, wx := make([]float64, rows*width), make([]float64, 2*rows*width)
			for i := range rows {
				for j := range width {
					g, u, d := vx[2*i*width+j], vx[(2*i+1)*width+j], vd[i*width+j]
					s := 1 / (1 + math.Exp(-g))
					wy[i*width+j] = g * s * u
					wx[2*i*width+j] = d * u * (s + g*s*(1-s))
					wx[(2*i+1)*width+j] = d * g * s
				}
			}
			size := 4 * math.Max(1, scale*scale)
			r.nearSize(t, "y", y, wy, 4, size)
			r.nearSize(t, "dx", dx, wx, 4, size)
			r.do(func(k device.Kernels) { k.SwiGLUBackward(x, dy, x, rows, width) })
			r.nearSize(t, "dx in place", x, wx, 4, size)
		})
	})
}

func TestRoPE(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		rapid.Check(t, func(t *rapid.T) {
			s := device.AttentionShape{
				Batch: rapid.IntRange(0, 3).Draw(t, "batch"), Tokens: small(t, "tokens"),
				Heads: rapid.IntRange(1, 4).Draw(t, "heads"), HeadDim: 2 * rapid.IntRange(1, 35).Draw(t, "half"),
			}
			w := s.Heads * s.HeadDim
			n := s.Batch * s.Tokens * 3 * w
			x, y, back := r.random(n), r.alloc(n), r.alloc(n)
			r.do(func(k device.Kernels) { k.RoPE(y, x, s); k.RoPEBackward(back, y, s) })
			vx := values(x)
			want := append([]float64(nil), vx...)
			for row := range s.Batch * s.Tokens {
				for h := range 2 * s.Heads {
					for i := range s.HeadDim / 2 {
						a, b := row*3*w+h*s.HeadDim+i, row*3*w+h*s.HeadDim+i+s.HeadDim/2
						sin, cos := math.Sincos(float64(row%s.Tokens) / math.Pow(10000, 2*float64(i)/float64(s.HeadDim)))
						want[a], want[b] = vx[a]*cos-vx[b]*sin, vx[b]*cos+vx[a]*sin
					}
				}
			}
			// An angle of many turns is rounded like a number of its size.
			size := float64(4 + s.Tokens)
			r.nearSize(t, "y", y, want, 2, size)
			// A rotation turned back is where it came from, but for what was rounded between.
			turned := 4.0
			if r.store == device.BF16 {
				turned = 4 << 14
			}
			r.nearSize(t, "back", back, vx, 4, turned)
			r.do(func(k device.Kernels) { k.RoPE(x, x, s) })
			r.nearSize(t, "in place", x, want, 2, size)
		})
		err := r.try(func(k device.Kernels) {
			k.RoPE(r.alloc(9), r.alloc(9), device.AttentionShape{Batch: 1, Tokens: 1, Heads: 1, HeadDim: 3})
		})
		if err == nil || !strings.Contains(err.Error(), "heads of 3 elements; they must be even") {
			t.Errorf("an odd head: error %v", err)
		}
	})
}

// A token embedding without positions, forward and backward, is the table and the sums by token alone.
func TestEmbedWithoutPositions(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		const rows, context, width, vocab = 2, 3, 5, 4
		table, tokens, none := r.random(vocab*width), r.ints([]int32{3, 0, 3, 1, 3, 0}), device.Slice{}
		y, with, dtable, dwith, dpositions := r.alloc(30), r.alloc(30), r.stat(20), r.stat(20), r.stat(15)
		r.do(func(k device.Kernels) {
			k.Embed(y, tokens, table, none, rows, context, width)
			k.Embed(with, tokens, table, r.of(make([]float64, context*width)), rows, context, width)
			k.EmbedBackward(dtable, none, y, tokens, rows, context, width)
			k.EmbedBackward(dwith, dpositions, y, tokens, rows, context, width)
		})
		r.near(t, "y", y, values(with), 0)
		r.near(t, "dtable", dtable, values(dwith), 0)
	})
}
