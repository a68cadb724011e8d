package actors

import (
	"sync"

	"github.com/troupe-train/troupe/actors/machine"
)

// failures are those that the trainer on another node has to hear of. They go with every heartbeat
// until the end: it does no harm to hear of one twice, and a lost heartbeat loses nothing.
type failures struct {
	mu   sync.Mutex
	all  []machine.Failed
	news chan struct{} // of capacity 1
}

func newFailures() *failures { return &failures{news: make(chan struct{}, 1)} }

// most bounds the list; the first failures are those that tell the cause.
const mostFailures = 16

func (f *failures) add(x machine.Failed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) < mostFailures {
		f.all = append(f.all, x)
	}
	select {
	case f.news <- struct{}{}:
	default:
	}
}

func (f *failures) list() []machine.Failed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]machine.Failed(nil), f.all...)
}
