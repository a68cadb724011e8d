package cpu

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/troupe-train/troupe/device"
)

// BenchmarkPeak is what the cores can do: fused multiply-adds and nothing else.
func BenchmarkPeak(b *testing.B) {
	for _, level := range Levels()[1:] {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", level, threads), func(b *testing.B) {
				var flops float64
				for b.Loop() {
					var group sync.WaitGroup
					done := make([]float64, threads)
					for i := range threads {
						group.Go(func() { done[i] = FusedMultiplyAdds(level, 20_000) })
					}
					group.Wait()
					for _, f := range done {
						flops += f
					}
				}
				b.ReportMetric(flops/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// benchmark runs a kernel at the levels of this processor and with 1 and 2 threads. work is floating-point operations,
// or bytes where the unit is GB/s.
func benchmark(b *testing.B, name string, work float64, unit string, prepare func(r *rig) func(device.Kernels)) {
	for _, level := range Levels() {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%s/threads=%d", name, level, threads), func(b *testing.B) {
				r := newRigAt(b, device.F32, level, threads)
				kernel := prepare(r)
				run := func() { r.do(kernel) }
				run()
				best := time.Hour
				for b.Loop() {
					began := time.Now()
					run()
					best = min(best, time.Since(began))
				}
				b.ReportMetric(work*float64(b.N)/b.Elapsed().Seconds()/1e9, unit)
				b.ReportMetric(work/best.Seconds()/1e9, "best-"+unit)
			})
		}
	}
}

// BenchmarkMatMul reports GFLOP/s; a multiply and an add count as two.
func BenchmarkMatMul(b *testing.B) {
	for _, p := range []device.MatMul{
		{M: 512, N: 512, K: 512},
		{M: 768, N: 3072, K: 1024},
		{M: 1024, N: 3072, K: 768},
		{M: 64, N: 768, K: 768},
		{M: 256, N: 50304, K: 768},
		{M: 1024, N: 768, K: 3072, TransB: true},
		{M: 768, N: 3072, K: 1024, TransA: true},
		{M: 1024, N: 128, K: 128},
		{M: 128, N: 512, K: 1024, TransA: true},
	} {
		name := fmt.Sprintf("%dx%dx%d", p.M, p.N, p.K)
		if p.TransA {
			name += "/A^T"
		}
		if p.TransB {
			name += "/B^T"
		}
		benchmark(b, name, 2*float64(p.M)*float64(p.N)*float64(p.K), "GFLOP/s", func(r *rig) func(device.Kernels) {
			x, y, z := r.random(p.M*p.K), r.random(p.K*p.N), r.alloc(p.M*p.N)
			return func(k device.Kernels) { k.MatMul(z, x, y, p) }
		})
	}
}

// BenchmarkAttention reports GFLOP/s of the scores that count, those at and before the diagonal.
func BenchmarkAttention(b *testing.B) {
	for _, s := range []device.AttentionShape{
		{Batch: 8, Tokens: 256, Heads: 6, HeadDim: 64},
		{Batch: 32, Tokens: 128, Heads: 4, HeadDim: 32},
		{Batch: 1, Tokens: 2048, Heads: 4, HeadDim: 64},
	} {
		name := fmt.Sprintf("%dx%dx%dx%d", s.Batch, s.Tokens, s.Heads, s.HeadDim)
		product := 2 * float64(s.Batch*s.Heads*s.HeadDim) * float64(s.Tokens) * float64(s.Tokens+1) / 2
		n := s.Batch * s.Tokens * s.Heads
		benchmark(b, "forward/"+name, 2*product, "GFLOP/s", func(r *rig) func(device.Kernels) {
			qkv, o, lse := r.random(3*n*s.HeadDim), r.alloc(n*s.HeadDim), r.alloc(n)
			return func(k device.Kernels) { k.Attention(o, lse, qkv, s) }
		})
		benchmark(b, "backward/"+name, 5*product, "GFLOP/s", func(r *rig) func(device.Kernels) {
			qkv, o, lse, do := r.random(3*n*s.HeadDim), r.alloc(n*s.HeadDim), r.alloc(n), r.random(n*s.HeadDim)
			dqkv, work := r.alloc(3*n*s.HeadDim), r.alloc(n)
			r.do(func(k device.Kernels) { k.Attention(o, lse, qkv, s) })
			return func(k device.Kernels) { k.AttentionBackward(dqkv, do, o, lse, qkv, work, s) }
		})
	}
}

// BenchmarkRows reports the bytes that a kernel must read and write at the least.
func BenchmarkRows(b *testing.B) {
	const rows, width = 2048, 768
	const n = rows * width
	const vector = 4.0 * n
	benchmark(b, "Add", 3*vector, "GB/s", func(r *rig) func(device.Kernels) {
		x, y, z := r.random(n), r.random(n), r.alloc(n)
		return func(k device.Kernels) { k.Add(z, x, y) }
	})
	benchmark(b, "GELU", 2*vector, "GB/s", func(r *rig) func(device.Kernels) {
		x, y := r.random(n), r.alloc(n)
		return func(k device.Kernels) { k.GELU(y, x) }
	})
	benchmark(b, "GELUBackward", 3*vector, "GB/s", func(r *rig) func(device.Kernels) {
		x, y, z := r.random(n), r.random(n), r.alloc(n)
		return func(k device.Kernels) { k.GELUBackward(z, y, x) }
	})
	benchmark(b, "LayerNorm", 2*vector, "GB/s", func(r *rig) func(device.Kernels) {
		x, y, g, m, s := r.random(n), r.alloc(n), r.random(width), r.alloc(rows), r.alloc(rows)
		return func(k device.Kernels) { k.LayerNorm(y, m, s, x, g, g, rows, width) }
	})
	benchmark(b, "LayerNormBackwardInput", 4*vector, "GB/s", func(r *rig) func(device.Kernels) {
		x, y, z, g, m := r.random(n), r.random(n), r.alloc(n), r.random(width), r.random(rows)
		return func(k device.Kernels) { k.LayerNormBackwardInput(z, y, y, x, g, m, m, rows, width) }
	})
	benchmark(b, "LayerNormBackwardWeight", 2*vector, "GB/s", func(r *rig) func(device.Kernels) {
		x, y, g, h, m := r.random(n), r.random(n), r.alloc(width), r.alloc(width), r.random(rows)
		return func(k device.Kernels) { k.LayerNormBackwardWeight(g, h, y, x, m, m, rows, width) }
	})
	benchmark(b, "SumRows", vector, "GB/s", func(r *rig) func(device.Kernels) {
		x, g := r.random(n), r.alloc(width)
		return func(k device.Kernels) { k.SumRows(g, x, rows, width) }
	})
	benchmark(b, "SumSquares", vector, "GB/s", func(r *rig) func(device.Kernels) {
		x, d := r.random(n), r.allocOf(device.F64, n/4096)
		return func(k device.Kernels) { k.SumSquares(d, x, 4096) }
	})
	benchmark(b, "CrossEntropy", vector, "GB/s", func(r *rig) func(device.Kernels) {
		x, l, s, ids := r.random(n), r.alloc(rows), r.alloc(rows), r.ints(make([]int32, rows))
		return func(k device.Kernels) { k.CrossEntropy(l, s, x, ids, rows, width) }
	})
	benchmark(b, "CrossEntropyBackward", 2*vector, "GB/s", func(r *rig) func(device.Kernels) {
		x, d, s, ids := r.random(n), r.alloc(n), r.random(rows), r.ints(make([]int32, rows))
		return func(k device.Kernels) { k.CrossEntropyBackward(d, x, s, ids, rows, width, 0.1) }
	})
	benchmark(b, "AdamW", 7*vector, "GB/s", func(r *rig) func(device.Kernels) {
		w, m, g, v := r.random(n), r.random(n), r.random(n), r.alloc(n)
		return func(k device.Kernels) {
			k.Fill(v, 1)
			k.AdamW(w, m, v, w, m, v, g, device.AdamW{LR: 1e-3, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Step: 10, GradScale: 1})
		}
	})
	benchmark(b, "Dropout", 2*vector, "GB/s", func(r *rig) func(device.Kernels) {
		x, y := r.random(n), r.alloc(n)
		return func(k device.Kernels) {
			k.Dropout(y, device.Slice{}, x, device.Dropout{P: 0.1, Key: 1, PerSample: 256 * width})
		}
	})
	benchmark(b, "Embed", 2*vector, "GB/s", func(r *rig) func(device.Kernels) {
		y, table, positions, ids := r.alloc(n), r.random(256*width), r.random(256*width), r.ints(make([]int32, rows))
		return func(k device.Kernels) { k.Embed(y, ids, table, positions, rows/256, 256, width) }
	})
	benchmark(b, "EmbedBackward", vector, "GB/s", func(r *rig) func(device.Kernels) {
		y, table, positions, ids := r.random(n), r.alloc(256*width), r.alloc(256*width), r.ints(make([]int32, rows))
		return func(k device.Kernels) { k.EmbedBackward(table, positions, y, ids, rows/256, 256, width) }
	})
}
