package cpu

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
)

// countTask counts its tiles.
type countTask struct{ n atomic.Int64 }

func (c *countTask) tile(int, *worker) { c.n.Add(1) }

// processors lets Go use n processors, also where there are fewer: a pool has no more workers than that.
func processors(t testing.TB, n int) {
	t.Helper()
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// Helpers without a processor would only be in the way: thousands of them, woken for every kernel, bring a step to a stop.
func TestPoolHasNoMoreWorkersThanProcessors(t *testing.T) {
	processors(t, 3)
	for threads, want := range map[int]int{1: 1, 2: 2, 3: 3, 4: 3, 4096: 3} {
		p := newPool(threads)
		if len(p.workers) != want || len(p.helpers) != want-1 {
			t.Errorf("%d threads on 3 processors: %d workers with %d helpers, want %d", threads, len(p.workers), len(p.helpers), want)
		}
		p.close()
	}
}

func TestPoolRunsEveryTileOnce(t *testing.T) {
	processors(t, 5)
	for _, threads := range []int{1, 2, 3, 5} {
		p := newPool(threads)
		var c countTask
		want := int64(0)
		for round := range 2000 {
			tiles := round % 7
			p.run(&c, tiles)
			if want += int64(tiles); c.n.Load() != want {
				t.Fatalf("%d threads: %d tiles have run when run returns, want %d", threads, c.n.Load(), want)
			}
		}
		p.close()
	}
}

// BenchmarkRun is the cost of handing two empty tiles out.
func BenchmarkRun(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			p := newPool(threads)
			defer p.close()
			var c countTask
			for b.Loop() {
				p.run(&c, 2)
			}
		})
	}
}
