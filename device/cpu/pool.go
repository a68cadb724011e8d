package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-train/troupe/device"
)

// task is a kernel cut into tiles. Tiles may run at the same time and in any order.
type task interface {
	tile(i int, w *worker)
}

// worker is one thread's scratch memory. Worker 0 is the owner of the stream.
type worker struct {
	id      int
	seat    seat
	scratch []byte
	params  [26]uint32  // of a kernel in assembly
	_       [align]byte // workers write their fields: keep them in cache lines of their own
}

// pool is the owner of a stream and its workers.
//
// A run opens the gate; whoever comes in while it is open helps; the owner closes it when no tile
// is left and waits only for those who are inside. So a worker that the operating system wakes late
// delays nobody.
//
// Kernels follow each other within microseconds, and whoever goes to sleep in between is woken late. So those who wait
// look again and again before they sleep.
type pool struct {
	workers []*worker
	helpers []*helper // the workers but the owner
	ended   sync.WaitGroup

	task  task
	tiles int
	next  atomic.Int64 // the next tile to take
	_     [align]byte
	runs  atomic.Int64 // how many runs have begun, or poolClosed
	_     [align]byte
	gate  atomic.Int64  // workers inside; plus gateClosed when nobody may come in
	empty chan struct{} // the last worker has left after the gate was closed, and the owner sleeps; capacity 1
	panic atomic.Pointer[device.Panic]
}

// helper is a worker that is not the owner. Whoever turns asleep to false wakes it: itself, or the owner by wake.
type helper struct {
	*worker
	asleep atomic.Bool
	wake   chan struct{} // capacity 1
}

const (
	// gateClosed is in the gate while no worker may come in, and ownerSleeps when the owner needs to be woken
	// by the last who leaves.
	gateClosed  = 1 << 32
	ownerSleeps = 1 << 33
	poolClosed  = -1

	// patience is how long a helper waits awake: the gaps between the kernels of an operation are shorter, and in the
	// longer ones, which messages make, it would be in the way of those who handle them. The owner waits longer, for
	// the last tiles of its helpers.
	patience, ownerPatience = 32 * time.Microsecond, 256 * time.Microsecond
)

// newPool has threads workers, but no more than there are processors: others would compute nothing sooner, and those who wait
// awake, or are woken, would be in the way of those who compute.
func newPool(threads int) *pool {
	p := &pool{empty: make(chan struct{}, 1)}
	p.gate.Store(gateClosed)
	for i := range min(threads, runtime.GOMAXPROCS(0)) {
		p.workers = append(p.workers, &worker{id: i})
	}
	for _, w := range p.workers[1:] {
		h := &helper{worker: w, wake: make(chan struct{}, 1)}
		p.helpers = append(p.helpers, h)
		p.ended.Go(func() { p.live(h) })
	}
	return p
}

// live is the life of a helper.
func (p *pool) live(h *helper) {
	for seen := int64(0); ; {
		if !awaited(patience, runtime.Gosched, func() bool { return p.runs.Load() != seen }) {
			h.asleep.Store(true)
			if p.runs.Load() == seen || !h.asleep.CompareAndSwap(true, false) {
				<-h.wake
			}
		}
		if seen = p.runs.Load(); seen == poolClosed {
			return
		}
		p.help(h.worker)
	}
}

// awaited waits awake until something holds, and reports whether it came to hold in time. Now and then it lets others run.
func awaited(patience time.Duration, yield func(), holds func() bool) bool {
	const pauses, rounds = 16, 8 // some hundred nanoseconds, some microseconds
	for began, looks := time.Now(), 1; !holds(); looks++ {
		if looks%rounds == 0 {
			if time.Since(began) > patience {
				return false
			}
			yield()
		}
		pause(pauses)
	}
	return true
}

// begin tells the helpers, at most n, that there is something new.
func (p *pool) begin(n int) {
	for _, h := range p.helpers[:min(n, len(p.helpers))] {
		if h.asleep.Load() && h.asleep.CompareAndSwap(true, false) {
			h.wake <- struct{}{}
		}
	}
}

// run runs the tiles of t and returns when all are complete. A panic in a tile is a panic of run;
// the other tiles may then not have run.
func (p *pool) run(t task, tiles int) {
	if tiles <= 1 || len(p.helpers) == 0 {
		for i := range tiles {
			t.tile(i, p.workers[0])
		}
		return
	}
	owner := p.workers[0]
	owner.seat.take()
	p.task, p.tiles = t, tiles
	p.next.Store(0)
	p.gate.Store(0)
	p.runs.Add(1)
	p.begin(tiles - 1)
	p.drain(owner)
	if p.gate.Add(gateClosed) != gateClosed && !awaited(ownerPatience, owner.seat.take, func() bool { return p.gate.Load() == gateClosed }) {
		if p.gate.Add(ownerSleeps) != gateClosed+ownerSleeps {
			<-p.empty
		}
		p.gate.Add(-ownerSleeps)
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
	w.seat.take()
	p.drain(w)
	w.seat.leave()
	if p.gate.Add(-1) == gateClosed+ownerSleeps {
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
	p.runs.Store(poolClosed)
	p.begin(len(p.helpers))
	p.ended.Wait()
}
