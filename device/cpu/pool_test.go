package cpu

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// countTask counts its tiles.
type countTask struct{ n atomic.Int64 }

func (c *countTask) tile(int, *worker) { c.n.Add(1) }

func TestPoolRunsEveryTileOnce(t *testing.T) {
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
