package cpu

import (
	"math"
	"runtime"
	"sync"

	"golang.org/x/sys/cpu"

	"github.com/troupe-train/troupe/device/random"
)

//go:generate go run ./internal/gen

func vectorLevels() []Level {
	var have []Level
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		have = append(have, AVX2)
		if cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ {
			have = append(have, AVX512)
			if cpu.X86.HasAVX512BF16 && dotsAgree() {
				have = append(have, AVX512BF16)
			}
		}
	}
	return have
}

// vectors are the row kernels and products of a level; nil where they are those of portable Go.
func vectors(l Level) (*rowOps[float32], *productTable) {
	switch l {
	case AVX512BF16:
		t := productsAVX512
		t.pairs = &dotsAVX512
		return &rowOpsAVX512, &t
	case AVX512:
		t := productsAVX512
		t.pairs = &pairsAVX512
		return &rowOpsAVX512, &t
	case AVX2:
		t := productsAVX2
		t.pairs = &pairsAVX2
		return &rowOpsAVX2, &t
	}
	return nil, nil
}

// dotsAgree reports whether VDPBF16PS gives the bits of two fused multiply-adds, on numbers of every size with signs that
// cancel. A processor where it does not is used as one that does not have it.
var dotsAgree = sync.OnceValue(func() bool {
	const k, rows, width = 64, 8, 48
	a, b := make([]float32, rows*k), make([]float32, k*width)
	for round := range uint64(64) {
		// Exponents are spread over 2^6 at first and over all of float32, subnormals included, in the end.
		spread := min(254, 6+4*round)
		for i, v := range [][]float32{a, b} {
			for j := range v {
				var word uint32
				bits := random.Block(round, uint64(i), uint64(j))
				for half, x := range bits[:2] {
					exponent := 127 - spread/2 + uint64(x>>16)%(spread+1)
					word |= (x&0x807f | uint32(exponent)<<7) << (16 * half)
				}
				v[j] = math.Float32frombits(word)
			}
		}
		var sums [2][rows * width]float32
		for i, t := range []*productTable{&dotsAVX512, &pairsAVX512} {
			t.kernel[0][0][0](k, &a[0], 4*k, &b[0], 4*width, &sums[i][0], 4*width, 0)
		}
		for i, v := range sums[0] {
			w := sums[1][i]
			if math.Float32bits(v) != math.Float32bits(w) && (v == v || w == w) {
				return false
			}
		}
	}
	return true
})

// FusedMultiplyAdds does about n million floating-point operations on one core, with the widest
// fused multiply-adds of level l and nothing else, and returns how many it did: what a clock says
// of it is the peak of the core. It is 0 for Portable.
func FusedMultiplyAdds(l Level, n int) float64 {
	const sums, million = 12, 1_000_000
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var here seat
	here.take()
	defer here.leave()
	switch l {
	case AVX512, AVX512BF16:
		times := n * million / (2 * sums * 16)
		peakAVX512(times)
		return float64(times) * 2 * sums * 16
	case AVX2:
		times := n * million / (2 * sums * 8)
		peakAVX2(times)
		return float64(times) * 2 * sums * 8
	}
	return 0
}

// DotProducts is FusedMultiplyAdds for products of bfloat16: with VDPBF16PS at level AVX512BF16, each of which counts as
// two, and the same as FusedMultiplyAdds where there is none.
func DotProducts(l Level, n int) float64 {
	const sums, million = 12, 1_000_000
	if l != AVX512BF16 {
		return FusedMultiplyAdds(l, n)
	}
	times := n * million / (4 * sums * 16)
	peakDotsAVX512(times)
	return float64(times) * 4 * sums * 16
}
