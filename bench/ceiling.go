package bench

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
)

// peakMillions is the floating-point operations of one thread in a sample of the peak, in
// millions: some ten milliseconds.
const peakMillions = 1000

// peak is one sample of what threads threads can do, in floating-point operations a second: fused
// multiply-adds of operands of type t in registers with the widest vectors of level. It is 0 where level has none. Threads
// beyond the processors add nothing, as in a stream.
func peak(threads int, t device.DType, level cpu.Level) float64 {
	threads = min(threads, runtime.GOMAXPROCS(0))
	add := cpu.FusedMultiplyAdds
	if t == device.BF16 {
		add = cpu.DotProducts
	}
	done := make([]float64, threads)
	var ready atomic.Int64
	var began time.Time
	var group sync.WaitGroup
	for i := range threads {
		group.Go(func() {
			add(level, peakMillions/4) // until every thread has a processor of its own
			if ready.Add(1) == int64(threads) {
				began = time.Now()
				ready.Add(1)
			}
			for ready.Load() <= int64(threads) {
				runtime.Gosched()
			}
			done[i] = add(level, peakMillions)
		})
	}
	group.Wait()
	elapsed := time.Since(began)
	var sum float64
	for _, n := range done {
		sum += n
	}
	return sum / elapsed.Seconds()
}

// share is part / whole, and 0 where the whole is not known.
func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
