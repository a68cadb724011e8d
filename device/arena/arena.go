package arena

import (
	"fmt"
	"slices"
	"sync"
)

// Align is what blocks begin at a multiple of: a cache line, and the widest vector register.
const Align = 64

// hugePage is the size of a huge page.
const hugePage = 2 << 20

// maxSize keeps sizes below what an int of bytes holds.
const maxSize = 1 << 46

// Arena is one piece of memory. It is safe for concurrent use.
type Arena struct {
	mu     sync.Mutex
	data   []byte
	unmap  func()
	holes  []hole // by offset; no two touch
	taken  int
	closed bool
}

type hole struct{ at, size int64 }

// New is an arena of at least size bytes. The blocks of one that is used to its last byte do not
// fit well: give it more than is taken at once.
func New(size int64) (*Arena, error) {
	if size < 0 || size > maxSize {
		return nil, fmt.Errorf("arena: %d bytes; 0 to %d are legal", size, int64(maxSize))
	}
	size = (size + hugePage) &^ (hugePage - 1)
	data, unmap, err := mapMemory(size)
	if err != nil {
		return nil, fmt.Errorf("arena: %d bytes: %w", size, err)
	}
	return &Arena{data: data, unmap: unmap, holes: []hole{{0, size}}}, nil
}

// Size is the bytes of the arena.
func (a *Arena) Size() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int64(len(a.data))
}

// Take is a block of size bytes, rounded up to a multiple of Align and to no less than that, with undefined
// contents, and its offset. It is not ok where there is no hole that is large enough, and after Close.
func (a *Arena) Take(size int64) (block []byte, at int64, ok bool) {
	size = max(Align, (size+Align-1)&^(Align-1))
	a.mu.Lock()
	defer a.mu.Unlock()
	best := -1
	for i, h := range a.holes {
		if h.size >= size && (best < 0 || h.size < a.holes[best].size) {
			best = i
		}
	}
	if best < 0 || a.closed {
		return nil, 0, false
	}
	h := &a.holes[best]
	at = h.at
	h.at += size
	h.size -= size
	if h.size == 0 {
		a.holes = slices.Delete(a.holes, best, best+1)
	}
	a.taken++
	return a.data[at : at+size : at+size], at, true
}

// Give ends the block of size bytes at an offset.
func (a *Arena) Give(at, size int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearchFunc(a.holes, at, func(h hole, at int64) int { return int(h.at - at) })
	before := i > 0 && a.holes[i-1].at+a.holes[i-1].size == at
	after := i < len(a.holes) && at+size == a.holes[i].at
	switch {
	case before && after:
		a.holes[i-1].size += size + a.holes[i].size
		a.holes = slices.Delete(a.holes, i, i+1)
	case before:
		a.holes[i-1].size += size
	case after:
		a.holes[i] = hole{at, size + a.holes[i].size}
	default:
		a.holes = slices.Insert(a.holes, i, hole{at, size})
	}
	a.taken--
	a.end()
}

// Close ends the arena: nothing more is taken, and the memory goes back when nothing is.
func (a *Arena) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.end()
}

func (a *Arena) end() {
	if a.closed && a.taken == 0 && a.data != nil {
		a.data = nil
		a.unmap()
	}
}
