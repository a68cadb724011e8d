package cpu

import (
	"fmt"
	"testing"

	"github.com/troupe-train/troupe/device"
)

// BenchmarkMatMul reports GFLOP/s; a multiply and an add count as two.
func BenchmarkMatMul(b *testing.B) {
	for _, s := range [][3]int{{512, 512, 512}, {768, 3072, 1024}, {1024, 3072, 768}, {64, 768, 768}} {
		for _, threads := range []int{1, 2} {
			m, n, k := s[0], s[1], s[2]
			b.Run(fmt.Sprintf("%dx%dx%d/threads=%d", m, n, k, threads), func(b *testing.B) {
				r := newRig(b, device.F32, threads)
				x, y, z := r.random(m*k), r.random(k*n), r.alloc(m*n)
				run := func() {
					r.do(func(k device.Kernels) { k.MatMul(z, x, y, device.MatMul{M: m, N: n, K: s[2]}) })
				}
				run()
				for b.Loop() {
					run()
				}
				b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
