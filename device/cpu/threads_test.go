package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/troupe-train/troupe/device"
)

// output is a slice that a kernel wrote.
type output struct {
	kernel string
	device.Slice
}

// everything runs every kernel on shapes that do not fit the tiles, and returns all outputs.
func everything(r *rig) []output {
	r.seed = 0
	var out []output
	var kernel string
	add := func(s device.Slice) device.Slice {
		out = append(out, output{kernel, s})
		return s
	}
	alloc := func(n int) device.Slice { return add(r.alloc(n)) }
	stat := func(n int) device.Slice { return add(r.stat(n)) }
	const rows, width, hidden, vocab, batch, context = 141, 77, 301, 83, 3, 47
	x, dy, gain, bias := r.random(rows*width), r.random(rows*width), r.random(width), r.random(width)
	w, wb, dh := r.random(width*hidden), r.random(hidden), r.random(rows*hidden)
	table, positions := r.random(vocab*width), r.random(context*width)
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(i * i % vocab)
	}
	tokens := r.ints(ids)
	shape := device.AttentionShape{Batch: batch, Tokens: context, Heads: 7, HeadDim: 11}
	qkv := r.random(rows * width * 3)
	big, second, variance := r.random(30011), r.random(30011), r.random(30011)
	positive := values(variance)
	for i := range positive {
		positive[i] *= positive[i]
	}
	variance = r.statOf(positive)
	weights, gradient := r.randomStat(30011), r.randomStat(30011)
	shape16 := device.AttentionShape{Batch: batch, Tokens: context, Heads: 2, HeadDim: 32}
	qkv16 := r.random(rows * 64 * 3)
	means, rstds := r.randomStat(rows), r.randomStat(rows)
	zeros := r.ints(make([]int32, rows))
	r.do(func(k device.Kernels) {
		kernel = "LayerNorm"
		k.LayerNorm(alloc(rows*width), stat(rows), stat(rows), x, gain, bias, rows, width)
		kernel = "LayerNormBackwardInput"
		k.LayerNormBackwardInput(alloc(rows*width), x, dy, x, gain, means, rstds, rows, width)
		k.LayerNormBackwardInput(alloc(rows*width), device.Slice{}, dy, x, gain, means, rstds, rows, width)
		kernel = "LayerNormBackwardWeight"
		k.LayerNormBackwardWeight(stat(width), stat(width), dy, x, means, rstds, rows, width)
		kernel = "RMSNorm"
		k.RMSNorm(alloc(rows*width), stat(rows), x, gain, rows, width)
		kernel = "RMSNormBackwardInput"
		k.RMSNormBackwardInput(alloc(rows*width), x, dy, x, gain, rstds, rows, width)
		k.RMSNormBackwardInput(alloc(rows*width), device.Slice{}, dy, x, gain, rstds, rows, width)
		kernel = "RMSNormBackwardWeight"
		k.RMSNormBackwardWeight(stat(width), dy, x, rstds, rows, width)
		kernel = "SwiGLU"
		half := big.Sub(0, rows*50)
		k.SwiGLU(alloc(rows*25), half, rows, 25)
		k.SwiGLUBackward(alloc(rows*50), x.Sub(0, rows*25), half, rows, 25)
		kernel = "RoPE"
		k.RoPE(alloc(rows*64*3), qkv16, shape16)
		k.RoPEBackward(alloc(rows*64*3), qkv16, shape16)
		kernel = "MatMul"
		k.MatMul(alloc(rows*hidden), x, w, device.MatMul{M: rows, N: hidden, K: width, Bias: wb, GELU: alloc(rows * hidden)})
		k.MatMul(alloc(width*hidden), x, dh, device.MatMul{M: width, N: hidden, K: rows, TransA: true})
		dx := alloc(rows * width)
		k.Copy(dx, x)
		k.MatMul(dx, dh, w, device.MatMul{M: rows, N: width, K: hidden, TransB: true, Accumulate: true})
		k.MatMul(alloc(7*128), big, second, device.MatMul{M: 7, N: 128, K: 230})
		k.MatMul(alloc(7*5), big, second, device.MatMul{M: 7, N: 5, K: 4000})
		kernel = "GELU"
		k.GELU(alloc(rows*hidden), dh)
		k.GELUBackward(alloc(rows*hidden), dh, dh)
		kernel = "SumRows"
		k.SumRows(stat(hidden), dh, rows, hidden)
		k.SumRows(stat(4097), big.Sub(0, 7*4097), 7, 4097) // wider than the widest tile
		kernel = "Attention"
		for _, a := range []struct {
			s      device.AttentionShape
			qkv, o device.Slice
		}{{shape, qkv, x}, {shape16, qkv16, dh.Sub(0, rows*64)}} {
			n := a.s.Batch * a.s.Tokens * a.s.Heads
			lse := stat(n)
			k.Attention(alloc(n*a.s.HeadDim), lse, a.qkv, a.s)
			k.AttentionBackward(alloc(3*n*a.s.HeadDim), a.o, second.Sub(0, n*a.s.HeadDim), lse, a.qkv, r.stat(k.AttentionWork(a.s)), a.s)
		}
		kernel = "Embed"
		k.Embed(alloc(rows*width), tokens, table, positions, batch, context, width)
		k.EmbedBackward(stat(vocab*width), stat(context*width), dy, tokens, batch, context, width)
		k.Embed(alloc(rows*width), tokens, table, device.Slice{}, batch, context, width)
		kernel = "CrossEntropy"
		loss, l := stat(rows), stat(rows)
		k.CrossEntropy(loss, l, x, zeros, rows, width)
		k.CrossEntropyBackward(alloc(rows*width), x, l, zeros, rows, width, 0.1)
		kernel = "Dropout"
		k.Dropout(alloc(30011), second, big, device.Dropout{P: 0.2, Key: 3, Sample: 8, PerSample: 1000})
		kernel = "Add"
		k.Add(alloc(30011), big, second)
		kernel = "AdamW"
		k.AdamW(stat(30011), stat(30011), stat(30011), weights, gradient, variance, gradient,
			device.AdamW{LR: 0.1, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Decay: 0.1, Step: 3, GradScale: 0.5})
		kernel = "SGD"
		k.SGD(stat(30011), stat(30011), weights, gradient, weights, device.SGD{LR: 0.1, Momentum: 0.9, GradScale: 1})
		sum, squares := r.allocOf(device.F64, 1), r.allocOf(device.F64, 31)
		k.Sum(sum, weights)
		k.SumSquares(squares, weights, 1000)
		out = append(out, output{"Sum", sum}, output{"SumSquares", squares})
	})
	return out
}

func TestSameBitsForAnyNumberOfThreads(t *testing.T) {
	processors(t, 5)
	floats(t, func(t *testing.T, r *rig) {
		one := everything(newRigAt(t, r.store, r.d.Level(), 1))
		for _, threads := range []int{1, 2, 3, 5} {
			r := newRigAt(t, r.store, r.d.Level(), threads)
			for range 2 {
				for i, s := range everything(r) {
					if !slices.Equal(bitsOf(s.Slice), bitsOf(one[i].Slice)) {
						t.Errorf("%d threads: output %d (%s) has other bits than with one thread", threads, i, s.kernel)
					}
				}
			}
		}
	})
}

// The guarantee of Level's comment.
func TestSameBitsAtEveryLevel(t *testing.T) {
	equal := map[string]bool{"Add": true, "SumRows": true, "Embed": true, "Dropout": true, "Sum": true, "SumSquares": true, "AdamW": true,
		"SGD": true, "LayerNormBackwardWeight": true, "RMSNormBackwardWeight": true, "RoPE": true}
	levels := Levels()
	for _, store := range []device.DType{device.F32, device.BF16} {
		best := everything(newRig(t, store, 1))
		for _, level := range levels[:len(levels)-1] {
			for i, s := range everything(newRigAt(t, store, level, 1)) {
				if same := slices.Equal(bitsOf(s.Slice), bitsOf(best[i].Slice)); !same && (level != Portable || equal[s.kernel]) {
					t.Errorf("%s at level %s: output %d (%s) has other bits than at level %s", store, level, i, s.kernel, levels[len(levels)-1])
				}
			}
		}
	}
}

// The poison of new memory is NaN, so an element that no kernel wrote would show.
func TestEveryElementIsWritten(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		for i, s := range everything(r) {
			for j, v := range values(s.Slice) {
				if math.IsNaN(v) {
					t.Fatalf("output %d (%s) is NaN at %d", i, s.kernel, j)
				}
			}
		}
	})
}

// A step must not take memory from the Go heap: with the garbage collector idle, latency is even.
func TestKernelsDoNotAllocate(t *testing.T) {
	floats(t, func(t *testing.T, r *rig) {
		const n = 64 * 64
		x, y, z, v := r.random(n), r.random(n), r.alloc(n), r.alloc(64)
		g, w, sums := r.stat(n), r.stat(n), r.stat(64)
		table, ids := r.random(n), r.ints(make([]int32, 64))
		lse, work, f64 := r.stat(64), r.stat(n), r.allocOf(device.F64, 1)
		shape := device.AttentionShape{Batch: 1, Tokens: 16, Heads: 4, HeadDim: 16}
		qkv, dqkv, o, l := r.random(3*16*64), r.alloc(3*16*64), r.alloc(16*64), r.stat(64)
		account := device.NewAccount("test", 0)
		step := func(k device.Kernels) error {
			k.MatMul(z, x, y, device.MatMul{M: 64, N: 64, K: 64, Bias: v, GELU: work})
			k.MatMul(g, x, y, device.MatMul{M: 64, N: 64, K: 64, TransA: true})
			k.Add(z, x, y)
			k.Fill(v, 1)
			k.Copy(z, x)
			k.Convert(g, x)
			k.Convert(z, g)
			k.LayerNorm(z, lse, l, x, v, v, 64, 64)
			k.LayerNormBackwardInput(z, x, y, x, v, lse, l, 64, 64)
			k.LayerNormBackwardWeight(sums, w.Sub(0, 64), y, x, lse, l, 64, 64)
			k.RMSNorm(z, lse, x, v, 64, 64)
			k.RMSNormBackwardInput(z, x, y, x, v, lse, 64, 64)
			k.RMSNormBackwardWeight(sums, y, x, lse, 64, 64)
			k.SwiGLU(z.Sub(0, n/2), x, 32, 64)
			k.SwiGLUBackward(z, y.Sub(0, n/2), x, 32, 64)
			k.RoPE(dqkv, qkv, shape)
			k.RoPEBackward(dqkv, dqkv, shape)
			k.GELU(z, x)
			k.GELUBackward(z, y, x)
			k.Attention(o, l, qkv, shape)
			k.AttentionBackward(dqkv, o, o, l, qkv, work, shape)
			k.Embed(z, ids, table, y, 1, 64, 64)
			k.EmbedBackward(g, work, x, ids, 1, 64, 64)
			k.CrossEntropy(sums, lse, x, ids, 64, 64)
			k.CrossEntropyBackward(z, x, lse, ids, 64, 64, 1)
			k.SumRows(sums, x, 64, 64)
			k.Sum(f64, w)
			k.SumSquares(f64, w, n)
			k.AdamW(g, g, g, w, w, w, w, device.AdamW{Step: 1})
			k.SGD(g, g, w, w, w, device.SGD{})
			k.Dropout(z, x, y, device.Dropout{P: 0.5, PerSample: n})
			s, err := r.d.Alloc(account, device.Activations, r.d.Float(), n)
			if err == nil {
				s.Release()
			}
			return err
		}
		done := make(chan error, 1)
		tell := func(err error) { done <- err }
		once := func() {
			r.s.Do(step, tell)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		once()
		if n := testing.AllocsPerRun(20, once); n != 0 {
			t.Errorf("a step allocates %v times", n)
		}
	})
}
