package cpu

import (
	"fmt"
	"sync"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/arena"
)

// reserve is the memory that was set aside for one account.
type reserve struct {
	*arena.Arena
	mu sync.Mutex
	// buffers are the objects by offset, also those that nobody holds: the same memory comes with the same object.
	buffers map[int64]*buffer
}

// maxBuffers bounds what a reserve remembers where its owner does something else every time.
const maxBuffers = 1 << 14

// reserves are those of a device, by account.
type reserves struct{ by sync.Map }

var _ device.Reserver = (*Device)(nil)

// Reserve sets memory aside for what an account allocates: bytes is the most that it is expected to hold at
// once, and a quarter is added for holes. What does not fit comes from elsewhere: only the account's limit
// refuses. free ends it: the memory goes back when the account holds nothing of it any more.
func (d *Device) Reserve(account *device.Account, bytes int64) (free func(), err error) {
	a, err := arena.New(bytes + bytes/4)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	r := &reserve{Arena: a, buffers: map[int64]*buffer{}}
	if _, there := d.reserves.by.LoadOrStore(account, r); there {
		a.Close()
		return nil, fmt.Errorf("cpu: memory was set aside for this account before")
	}
	return func() {
		d.reserves.by.CompareAndDelete(account, r)
		a.Close()
	}, nil
}

// get is nil where nothing was set aside for the account, or the rest is too small.
func (s *reserves) get(account *device.Account, size int64) *buffer {
	if account == nil {
		return nil
	}
	r, ok := s.by.Load(account)
	if !ok {
		return nil
	}
	return r.(*reserve).get(size)
}

func (r *reserve) get(size int64) *buffer {
	data, at, ok := r.Take(size)
	if !ok {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buffers[at]
	if b == nil {
		if len(r.buffers) == maxBuffers {
			clear(r.buffers)
		}
		b = &buffer{reserve: r, at: at}
		r.buffers[at] = b
	}
	b.data = data
	return b
}

func (r *reserve) put(b *buffer) { r.Give(b.at, int64(len(b.data))) }
