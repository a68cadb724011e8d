package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/troupe-train/troupe/device"
)

// everything runs every kernel on shapes that do not fit the tiles, and returns all outputs.
func everything(r *rig) []device.Slice {
	r.seed = 0
	var out []device.Slice
	alloc := func(n int) device.Slice {
		s := r.alloc(n)
		out = append(out, s)
		return s
	}
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
	variance = r.of(positive)
	r.do(func(k device.Kernels) {
		y, mean, rstd := alloc(rows*width), alloc(rows), alloc(rows)
		k.LayerNorm(y, mean, rstd, x, gain, bias, rows, width)
		k.LayerNormBackwardInput(alloc(rows*width), x, dy, x, gain, mean, rstd, rows, width)
		k.LayerNormBackwardWeight(alloc(width), alloc(width), dy, x, mean, rstd, rows, width)
		h, g := alloc(rows*hidden), alloc(rows*hidden)
		k.MatMul(h, x, w, device.MatMul{M: rows, N: hidden, K: width, Bias: wb, GELU: g})
		k.MatMul(alloc(width*hidden), x, dh, device.MatMul{M: width, N: hidden, K: rows, TransA: true})
		dx := alloc(rows * width)
		k.Copy(dx, x)
		k.MatMul(dx, dh, w, device.MatMul{M: rows, N: width, K: hidden, TransB: true, Accumulate: true})
		k.GELU(alloc(rows*hidden), h)
		k.GELUBackward(alloc(rows*hidden), dh, h)
		k.SumRows(alloc(hidden), dh, rows, hidden)
		o, lse, do := alloc(rows*width), alloc(batch*7*context), x
		k.Attention(o, lse, qkv, shape)
		k.AttentionBackward(alloc(3*rows*width), do, o, lse, qkv, r.alloc(k.AttentionWork(shape)), shape)
		k.Embed(alloc(rows*width), tokens, table, positions, batch, context, width)
		k.EmbedBackward(alloc(vocab*width), alloc(context*width), dy, tokens, batch, context, width)
		loss, l := alloc(rows), alloc(rows)
		k.CrossEntropy(loss, l, x, r.ints(make([]int32, rows)), rows, width)
		k.CrossEntropyBackward(alloc(rows*width), x, l, r.ints(make([]int32, rows)), rows, width, 0.1)
		k.Dropout(alloc(30011), second, big, device.Dropout{P: 0.2, Key: 3, Sample: 8, PerSample: 1000})
		k.Add(alloc(30011), big, second)
		k.AdamW(alloc(30011), alloc(30011), alloc(30011), big, second, variance, second,
			device.AdamW{LR: 0.1, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Decay: 0.1, Step: 3, GradScale: 0.5})
		k.SGD(alloc(30011), alloc(30011), big, second, big, device.SGD{LR: 0.1, Momentum: 0.9, GradScale: 1})
		sum, squares := r.allocOf(device.F64, 1), r.allocOf(device.F64, 31)
		k.Sum(sum, big)
		k.SumSquares(squares, big, 1000)
		out = append(out, sum, squares)
	})
	return out
}

func TestSameBitsForAnyNumberOfThreads(t *testing.T) {
	for _, float := range []device.DType{device.F32, device.F64} {
		one := everything(newRig(t, float, 1))
		for _, threads := range []int{1, 2, 3, 5} {
			r := newRig(t, float, threads)
			for range 3 {
				for i, s := range everything(r) {
					if !slices.Equal(bitsOf(s), bitsOf(one[i])) {
						t.Errorf("%s, %d threads: output %d has other bits than with one thread", float, threads, i)
					}
				}
			}
		}
	}
}

// The poison of new memory is NaN, so an element that no kernel wrote would show.
func TestEveryElementIsWritten(t *testing.T) {
	for i, s := range everything(newRig(t, device.F32, 2)) {
		for j, v := range values(s) {
			if math.IsNaN(v) {
				t.Fatalf("output %d is NaN at %d", i, j)
			}
		}
	}
}

// A step must not take memory from the Go heap: with the garbage collector idle, latency is even.
func TestKernelsDoNotAllocate(t *testing.T) {
	for _, float := range []device.DType{device.F32, device.F64} {
		r := newRig(t, float, 2)
		const n = 64 * 64
		x, y, z, v := r.random(n), r.random(n), r.alloc(n), r.alloc(64)
		table, ids := r.random(n), r.ints(make([]int32, 64))
		lse, work, f64 := r.alloc(64), r.alloc(n), r.allocOf(device.F64, 1)
		shape := device.AttentionShape{Batch: 1, Tokens: 16, Heads: 4, HeadDim: 16}
		qkv, dqkv, o, l := r.random(3*16*64), r.alloc(3*16*64), r.alloc(16*64), r.alloc(64)
		account := device.NewAccount("test", 0)
		step := func(k device.Kernels) error {
			k.MatMul(z, x, y, device.MatMul{M: 64, N: 64, K: 64, Bias: v, GELU: work})
			k.Add(z, x, y)
			k.Fill(v, 1)
			k.Copy(z, x)
			k.LayerNorm(z, lse, l, x, v, v, 64, 64)
			k.LayerNormBackwardInput(z, x, y, x, v, lse, l, 64, 64)
			k.LayerNormBackwardWeight(v, lse, y, x, lse, l, 64, 64)
			k.GELU(z, x)
			k.GELUBackward(z, y, x)
			k.Attention(o, l, qkv, shape)
			k.AttentionBackward(dqkv, o, o, l, qkv, work, shape)
			k.Embed(z, ids, table, y, 1, 64, 64)
			k.EmbedBackward(z, work, x, ids, 1, 64, 64)
			k.CrossEntropy(v, lse, x, ids, 64, 64)
			k.CrossEntropyBackward(z, x, lse, ids, 64, 64, 1)
			k.SumRows(v, x, 64, 64)
			k.Sum(f64, x)
			k.SumSquares(f64, x, n)
			k.AdamW(z, z, z, x, y, x, y, device.AdamW{Step: 1})
			k.SGD(z, z, x, y, y, device.SGD{})
			k.Dropout(z, x, y, device.Dropout{P: 0.5, PerSample: n})
			s, err := r.d.Alloc(account, device.Activations, float, n)
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
			t.Errorf("%s: a step allocates %v times", float, n)
		}
	}
}
