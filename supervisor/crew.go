package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/troupe-train/troupe/actors"
)

// Quit is why a node has ended that was not ended by others: with an exit status of its own. Unless it has said goodbye,
// another one in its place may end in the same way: if it does so while the run gathers, no third one is started.
type Quit struct{ Err error }

func (q Quit) Error() string { return q.Err.Error() }
func (q Quit) Unwrap() error { return q.Err }

// crew are the processes of the nodes of a launch. They live over all attempts at the run: each is started once, and
// another one in its place when it has ended. Of a run in one process it is nil.
type crew struct {
	cluster        Cluster
	limits         Limits
	address, token string
	decided        func(Decision)
	ctx            context.Context // until the launch ends
	cancel         func()

	spawning sync.Mutex // held while a process is started

	mu          sync.Mutex
	coordinator *actors.Coordinator // of the newest attempt
	alive       map[int]bool        // they run, or are about to
	ends        map[int][]time.Time // of processes, within the window
	quits       map[int]string      // what processes have said that quit before they had joined
	since       map[int]time.Time   // processes were started, or struck for not having joined
}

func newCrew(ctx context.Context, c Cluster, l Limits, address, token string, decided func(Decision)) *crew {
	w := &crew{cluster: c, limits: l, address: address, token: token, decided: decided, alive: map[int]bool{}, ends: map[int][]time.Time{}, quits: map[int]string{}, since: map[int]time.Time{}}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

// gather starts the nodes that have no process and waits until all are ready.
func (w *crew) gather(ctx context.Context, c *actors.Coordinator) error {
	w.mu.Lock()
	w.coordinator = c
	var dead []int
	for i := 1; i <= w.cluster.Nodes; i++ {
		if !w.alive[i] {
			dead = append(dead, i)
			w.alive[i] = true
		}
	}
	w.mu.Unlock()
	for _, i := range dead {
		if err := w.start(i); err != nil {
			return fmt.Errorf("launch: node %d: %w", i, err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		w.reap(ctx, c)
	}()
	err := c.Gather(ctx)
	cancel()
	<-reaped
	return err
}

// reap kills processes that do not join, as long as ctx lasts, so that others are started in their place. A process that is
// stopped, or hangs, does not end by itself. Each has half of the time that the gathering has, so that the other half is left.
func (w *crew) reap(ctx context.Context, c *actors.Coordinator) {
	grace := w.limits.Join / 2
	if !w.cluster.Replace || w.cluster.Host == nil || grace <= 0 {
		return
	}
	began := time.Now()
	ticker := time.NewTicker(min(grace/4+1, time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for i := 1; i <= w.cluster.Nodes; i++ {
			if !w.overdue(i, began, grace) || !c.Lacks(i) {
				continue
			}
			w.decided(Noted{fmt.Sprintf("kill the process of node %d: it has not joined for %s", i, grace)})
			if err := w.cluster.Host.Kill(i); err != nil {
				w.decided(Noted{fmt.Sprintf("the process of node %d is not killed: %v", i, err)})
			}
			w.mu.Lock()
			w.since[i] = time.Now()
			w.mu.Unlock()
		}
	}
}

// overdue reports whether a process that is alive might have joined long ago.
func (w *crew) overdue(number int, began time.Time, grace time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := began
	if at := w.since[number]; at.After(from) {
		from = at
	}
	return w.alive[number] && time.Since(from) >= grace
}

// start starts a process, unless the launch ends.
func (w *crew) start(number int) error {
	w.spawning.Lock()
	defer w.spawning.Unlock()
	if w.ctx.Err() != nil {
		return nil
	}
	w.mu.Lock()
	w.since[number] = time.Now()
	w.mu.Unlock()
	return w.cluster.Spawn(w.ctx, number, w.address, w.token, func(err error) { w.ended(number, err) })
}

// end says that nodes end from now on because they are to end.
func (w *crew) end() {
	if w == nil {
		return
	}
	w.cancel()
	w.spawning.Lock() // no process is about to be started
	defer w.spawning.Unlock()
}

// afresh gives all nodes their whole budget back: an attempt begins from an earlier checkpoint.
func (w *crew) afresh() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.ends)
	clear(w.quits)
}

// ended takes in the end of a process, and starts another one if that may help.
func (w *crew) ended(number int, err error) {
	w.mu.Lock()
	now := time.Now()
	w.ends[number] = within(append(w.ends[number], now), now, w.limits.Window)
	c := w.coordinator
	w.mu.Unlock()
	c.Ended(number, err)
	if w.cluster.Replace {
		// Its last words may still be on their way.
		select {
		case <-w.ctx.Done():
		case <-time.After(max(w.limits.Backoff, lastWords)):
		}
	}
	if w.ctx.Err() != nil {
		return
	}
	if why := w.hopeless(number, c, err); why != nil {
		c.Fail(why) // says nothing if the run has begun
		return
	}
	w.decided(Noted{fmt.Sprintf("start another process as node %d: %v", number, err)})
	if err := w.start(number); err != nil {
		w.decided(Noted{fmt.Sprintf("node %d is not started again: %v", number, err)})
		w.lacks(number)
		c.Fail(fmt.Errorf("launch: node %d: %w", number, err))
	}
}

// lastWords is how long what a node has said may be on its way.
const lastWords = 100 * time.Millisecond

// hopeless says why a process that has ended is not started again; nil if it is to be.
func (w *crew) hopeless(number int, c *actors.Coordinator, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.ends[number]) // afresh may have come in between
	switch {
	case !w.cluster.Replace:
	case n > w.limits.Restarts:
		err = fmt.Errorf("%w; it has ended %s within %s, and supervisor.restarts is %d", err, times(n), w.limits.Window, w.limits.Restarts)
		w.decided(Noted{fmt.Sprintf("node %d is not started again: %v", number, err)})
	case errors.As(err, new(Quit)) && c == w.coordinator && c.Gathers() && !c.Left(number):
		// Once may be by chance.
		if w.quits[number] != err.Error() {
			w.quits[number] = err.Error()
			return nil
		}
		err = fmt.Errorf("%w; so has another process in its place", err)
	default:
		return nil
	}
	w.alive[number] = false
	return err
}

// host lets faults strike the processes, if they are within reach.
func (w *crew) host() HostFaults {
	if w.cluster.Host == nil {
		return nil
	}
	return w
}

// Kill ends the process in which a node lives.
func (w *crew) Kill(node int) error {
	n, err := w.process(node)
	if err != nil {
		return err
	}
	return w.cluster.Host.Kill(n)
}

// Pause stops the process in which a node lives for some time.
func (w *crew) Pause(node int, d time.Duration) error {
	n, err := w.process(node)
	if err != nil {
		return err
	}
	return w.cluster.Host.Pause(n, d)
}

// process is the number that the process of a node was started by. A process that has joined again may have become another node.
func (w *crew) process(node int) (int, error) {
	w.mu.Lock()
	c := w.coordinator
	w.mu.Unlock()
	if c == nil || node == 0 {
		return node, nil
	}
	n, ok := c.Origin(node)
	switch {
	case !ok:
		return node, nil // the one that is to be it
	case n == 0:
		return 0, fmt.Errorf("node %d was started by somebody else", node)
	}
	return n, nil
}

// lacks notes that a node has no process.
func (w *crew) lacks(number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alive[number] = false
}
