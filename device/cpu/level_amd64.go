package cpu

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

//go:generate go run ./internal/gen

func vectorLevels() []Level {
	var have []Level
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		have = append(have, AVX2)
		if cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ {
			have = append(have, AVX512)
		}
	}
	return have
}

// vectors are the row kernels and products of a level; nil where they are those of portable Go.
func vectors(l Level) (*rowOps[float32], *productTable) {
	switch l {
	case AVX512:
		return &rowOpsAVX512, &productsAVX512
	case AVX2:
		return &rowOpsAVX2, &productsAVX2
	}
	return nil, nil
}

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
	case AVX512:
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
