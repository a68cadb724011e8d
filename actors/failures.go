package actors

import (
	"sync"

	"github.com/troupe-train/troupe/actors/machine"
)

// failures are those that the trainer on another node has to hear of. They are numbered, and the newest go with every
// heartbeat until the end: it does no harm to hear of one twice, and a lost heartbeat loses nothing.
type failures struct {
	mu        sync.Mutex
	all       []machine.Failed
	forgotten uint64        // how many there were before those in all
	news      chan struct{} // of capacity 1
}

func newFailures() *failures { return &failures{news: make(chan struct{}, 1)} }

// mostFailures bounds the list. So many do not happen between two heartbeats that arrive.
const mostFailures = 64

func (f *failures) add(x machine.Failed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all = append(f.all, x); len(f.all) > mostFailures {
		f.all = f.all[1:]
		f.forgotten++
	}
	f.kick()
}

// kick says that there is something that others want to hear soon.
func (f *failures) kick() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

func (f *failures) list() (all []machine.Failed, forgotten uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]machine.Failed(nil), f.all...), f.forgotten
}
