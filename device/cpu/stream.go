package cpu

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/troupe-train/troupe/device"
)

// ErrClosed is what done gets for work that was queued on a closed stream.
var ErrClosed = errors.New("cpu: the stream is closed")

// Stream runs work on one goroutine, and shares the tiles of each kernel with its workers. Its queue grows as
// needed; whoever queues work bounds it.
//
// The goroutine is not locked to a thread: when an operation ends, the same thread goes on with the actor that is told, and then
// with the operation that it launches, where a locked one would be put to sleep and woken for each.
type Stream struct {
	device  *Device
	name    string
	kernels device.Kernels
	pool    *pool

	mu     sync.Mutex
	wake   *sync.Cond // on mu: the queue is no longer empty, or closed
	queue  []item     // a ring
	head   int
	count  int
	closed bool
	ended  chan struct{}
}

var _ device.Stream = (*Stream)(nil)

// item is one thing in the queue: work, an event to complete, or an event to wait for.
type item struct {
	work   func(device.Kernels) error
	done   func(error)
	record event
	wait   device.Event
}

func newStream(d *Device, name string, threads int) *Stream {
	s := &Stream{device: d, name: name, pool: newPool(threads), ended: make(chan struct{})}
	s.wake = sync.NewCond(&s.mu)
	if d.float == device.F64 {
		s.kernels = newKernels(s.pool, device.F64, portableRows[float64](), nil)
	} else if ops, table := vectors(d.level); ops != nil {
		s.kernels = newKernels(s.pool, device.F32, ops, &blockedTask{ops: ops, table: table})
	} else {
		s.kernels = newKernels(s.pool, device.F32, portableRows[float32](), nil)
	}
	go s.run()
	return s
}

// Do queues work. After Close, done is called at once with ErrClosed.
func (s *Stream) Do(work func(device.Kernels) error, done func(error)) {
	if !s.push(item{work: work, done: done}) {
		done(fmt.Errorf("stream %s: %w", s.name, ErrClosed))
	}
}

// Record returns an event that completes when all that has been queued so far is complete.
func (s *Stream) Record() device.Event {
	e := make(event)
	if !s.push(item{record: e}) {
		<-s.ended
		close(e)
	}
	return e
}

// Wait makes what is queued later wait for the event.
func (s *Stream) Wait(e device.Event) { s.push(item{wait: e}) }

// Close waits for what has been queued and ends the stream and its workers. It must not be called
// from work or done of the same stream.
func (s *Stream) Close() error {
	s.mu.Lock()
	s.closed = true
	s.wake.Signal()
	s.mu.Unlock()
	<-s.ended
	s.device.closedStream(s)
	return nil
}

func (s *Stream) push(it item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.count == len(s.queue) {
		bigger := make([]item, max(16, 2*len(s.queue)))
		for i := range s.count {
			bigger[i] = s.queue[(s.head+i)%len(s.queue)]
		}
		s.queue, s.head = bigger, 0
	}
	s.queue[(s.head+s.count)%len(s.queue)] = it
	s.count++
	s.wake.Signal()
	return true
}

// pop waits for the next item; false means that the stream is closed and the queue is empty.
func (s *Stream) pop() (item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.count == 0 {
		if s.closed {
			return item{}, false
		}
		s.wake.Wait()
	}
	it := s.queue[s.head]
	s.queue[s.head] = item{}
	s.head = (s.head + 1) % len(s.queue)
	s.count--
	return it, true
}

func (s *Stream) run() {
	defer close(s.ended)
	defer s.pool.close()
	for {
		it, ok := s.pop()
		switch {
		case !ok:
			return
		case it.record != nil:
			close(it.record)
		case it.wait != nil:
			// The background context never ends, so there is no error.
			_ = it.wait.Wait(context.Background())
		default:
			it.done(s.do(it.work))
		}
	}
}

func (s *Stream) do(work func(device.Kernels) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = asPanic(v)
		}
	}()
	seat := &s.pool.workers[0].seat
	seat.take()
	defer seat.leave()
	return work(s.kernels)
}

// asPanic keeps the panic of a worker, which has the stack of the worker.
func asPanic(v any) *device.Panic {
	if p, ok := v.(*device.Panic); ok {
		return p
	}
	return &device.Panic{Value: v, Stack: debug.Stack()}
}
