package cpu

import (
	"sync"
	"sync/atomic"

	"github.com/troupe-train/troupe/device"
)

// task is a kernel cut into tiles. Tiles may run at the same time and in any order.
type task interface {
	tile(i int, w *worker)
}

// worker is one thread's scratch memory. Worker 0 is the owner of the stream.
type worker struct {
	id      int
	scratch []byte
	params  [26]uint32  // of a kernel in assembly
	_       [align]byte // workers write their fields: keep them in cache lines of their own
}

// pool is the owner of a stream and its workers.
//
// A run opens the gate; whoever comes in while it is open helps; the owner closes it when no tile
// is left and waits only for those who are inside. So a worker that the operating system wakes late
// delays nobody.
type pool struct {
	workers []*worker
	wake    []chan struct{} // one for each worker but the owner, capacity 1
	stop    chan struct{}
	ended   sync.WaitGroup

	task  task
	tiles int
	next  atomic.Int64 // the next tile to take
	_     [align]byte
	gate  atomic.Int64  // workers inside; plus gateClosed when nobody may come in
	empty chan struct{} // the last worker has left after the gate was closed; capacity 1
	panic atomic.Pointer[device.Panic]
}

const gateClosed = 1 << 32

func newPool(threads int) *pool {
	p := &pool{stop: make(chan struct{}), empty: make(chan struct{}, 1)}
	p.gate.Store(gateClosed)
	for i := range threads {
		p.workers = append(p.workers, &worker{id: i})
	}
	for _, w := range p.workers[1:] {
		wake := make(chan struct{}, 1)
		p.wake = append(p.wake, wake)
		p.ended.Add(1)
		go func() {
			defer p.ended.Done()
			for {
				select {
				case <-p.stop:
					return
				case <-wake:
					p.help(w)
				}
			}
		}()
	}
	return p
}

// run runs the tiles of t and returns when all are complete. A panic in a tile is a panic of run;
// the other tiles may then not have run.
func (p *pool) run(t task, tiles int) {
	if tiles <= 1 || len(p.wake) == 0 {
		for i := range tiles {
			t.tile(i, p.workers[0])
		}
		return
	}
	p.task, p.tiles = t, tiles
	p.next.Store(0)
	p.gate.Store(0)
	for _, wake := range p.wake[:min(len(p.wake), tiles-1)] {
		select {
		case wake <- struct{}{}:
		default: // it has not seen the last one yet, and comes anyway
		}
	}
	p.drain(p.workers[0])
	if p.gate.Add(gateClosed) != gateClosed {
		<-p.empty
	}
	p.task = nil
	if e := p.panic.Swap(nil); e != nil {
		panic(e)
	}
}

func (p *pool) help(w *worker) {
	for {
		g := p.gate.Load()
		if g >= gateClosed {
			return
		}
		if p.gate.CompareAndSwap(g, g+1) {
			break
		}
	}
	p.drain(w)
	if p.gate.Add(-1) == gateClosed {
		p.empty <- struct{}{}
	}
}

func (p *pool) drain(w *worker) {
	defer func() {
		if v := recover(); v != nil {
			p.panic.CompareAndSwap(nil, asPanic(v))
			p.next.Store(int64(p.tiles)) // no further tiles
		}
	}()
	for {
		i := p.next.Add(1) - 1
		if i >= int64(p.tiles) {
			return
		}
		p.task.tile(int(i), w)
	}
}

func (p *pool) close() {
	close(p.stop)
	p.ended.Wait()
}
