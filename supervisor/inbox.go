package supervisor

import (
	"sync"

	"github.com/troupe-train/troupe/plan"
)

// inbox takes news from any goroutine without ever blocking it. What is in it is bounded by what actors and nodes can
// do before the loop that reads it comes round again.
type inbox struct {
	mu    sync.Mutex
	list  []any
	ready chan struct{} // of capacity 1
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

func (i *inbox) add(news any) {
	i.mu.Lock()
	i.list = append(i.list, news)
	i.mu.Unlock()
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// opened is the newest round that the trainer is said to have opened, of what has not been taken yet.
func (i *inbox) opened() (r plan.Round, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, news := range i.list {
		if b, is := news.(began); is && b.actor == plan.Trainer {
			r, ok = b.round, true
		}
	}
	return r, ok
}

func (i *inbox) take() []any {
	i.mu.Lock()
	defer i.mu.Unlock()
	list := i.list
	i.list = nil
	return list
}
