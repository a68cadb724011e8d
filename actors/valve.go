package actors

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Valve cuts nodes off from each other, as a network does that drops what they send: it stands where frames, control messages
// and questions between nodes leave a process and come in. It outlives the node that it is made for. Nil is always open.
type Valve struct {
	// closed says that there may be cuts: most of the time nobody has to look further.
	closed atomic.Bool

	mu   sync.Mutex
	self int // the number of the node; nobody until it is known
	cuts []cutOff
}

// cutOff says that some nodes and all the others do not hear each other until a time.
type cutOff struct {
	nodes []int
	until time.Time
}

// nobody is the number of a node that has none yet.
const nobody = -1

// NewValve is open.
func NewValve() *Valve { return &Valve{self: nobody} }

// Cut has some nodes and all others not hear each other for d.
func (v *Valve) Cut(nodes []int, d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed.Store(true)
	v.cuts = append(v.cuts, cutOff{slices.Clone(nodes), time.Now().Add(d)})
}

// is says which node the process is.
func (v *Valve) is(self int) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.self = self
}

// shut reports whether the process and a node do not hear each other now.
func (v *Valve) shut(node int) bool {
	if v == nil || !v.closed.Load() {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.until(node).IsZero()
}

// until is when the process and a node hear each other again; zero for now. v.mu is held.
func (v *Valve) until(node int) time.Time {
	var until time.Time
	now := time.Now()
	v.cuts = slices.DeleteFunc(v.cuts, func(c cutOff) bool { return !c.until.After(now) })
	v.closed.Store(len(v.cuts) > 0)
	if v.self == nobody || node == v.self {
		return until
	}
	for _, c := range v.cuts {
		if slices.Contains(c.nodes, v.self) != slices.Contains(c.nodes, node) && c.until.After(until) {
			until = c.until
		}
	}
	return until
}

// pass returns when the process and a node hear each other, or with an error when ctx ends before they do: what is sent into a
// cut is not refused, nobody answers.
func (v *Valve) pass(ctx context.Context, node int) error {
	if v == nil {
		return nil
	}
	for {
		v.mu.Lock()
		until := v.until(node)
		v.mu.Unlock()
		if until.IsZero() {
			return nil
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// errShut is why something was not sent.
var errShut = errors.New("the valve is shut")
