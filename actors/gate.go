package actors

import "sync"

// gate counts work that is under way, and says when there is none.
type gate struct {
	mu    sync.Mutex
	count int
	empty chan struct{} // closed while count is 0
}

func newGate() *gate {
	g := &gate{empty: make(chan struct{})}
	close(g.empty)
	return g
}

func (g *gate) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count == 0 {
		g.empty = make(chan struct{})
	}
	g.count++
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count--
	if g.count == 0 {
		close(g.empty)
	}
}

// idle returns a channel that is closed when nothing is under way.
func (g *gate) idle() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.empty
}
