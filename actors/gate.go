package actors

import "sync"

// gate counts work that is under way, and says when there is none.
type gate struct {
	mu    sync.Mutex
	count int
	empty chan struct{} // nil, or closed when count comes to 0
}

func newGate() *gate { return &gate{} }

// nothing is a closed channel.
var nothing = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (g *gate) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count++
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count--
	if g.count == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// idle returns a channel that is closed when nothing is under way.
func (g *gate) idle() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count == 0 {
		return nothing
	}
	if g.empty == nil {
		g.empty = make(chan struct{})
	}
	return g.empty
}
