package actors

import (
	"sync"

	"github.com/troupe-train/troupe/actors/machine"
)

// drops are payloads to be released when operations are complete. They are released on the stream, right after
// the operation, and not when the actor comes to hear of it: the next one may need the memory.
type drops struct {
	mu       sync.Mutex
	complete uint64 // operations
	waiting  []drop // after ascends
}

// drop is a payload that is released when after operations are complete.
type drop struct {
	after   uint64
	payload machine.Payload
}

// add releases a payload when after operations are complete, which may be now.
func (d *drops) add(after uint64, p machine.Payload) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.complete >= after {
		p.Release()
		return
	}
	d.waiting = append(d.waiting, drop{after, p})
}

// landed is called when another operation is complete.
func (d *drops) landed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.complete++
	i := 0
	for ; i < len(d.waiting) && d.waiting[i].after <= d.complete; i++ {
		d.waiting[i].payload.Release()
	}
	rest := copy(d.waiting, d.waiting[i:])
	clear(d.waiting[rest:])
	d.waiting = d.waiting[:rest]
}
