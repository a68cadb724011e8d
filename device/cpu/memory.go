package cpu

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/troupe-train/troupe/device"
)

// align is the alignment of all memory: a cache line, and the widest vector register.
const align = 64

// memory keeps buffers that nobody holds, by size class: those of accounts for which nothing was
// set aside, and those that did not fit there. It counts all that are held.
type memory struct {
	mu    sync.Mutex
	free  [classes][]*buffer
	count int
	bytes int64
}

// buffer is a region of memory. The object is reused with its memory.
type buffer struct {
	device  *Device
	reserve *reserve // nil: of a size class
	class   int      // the size class, or
	at      int64    // where it begins in the reserve
	refs    atomic.Int32
	account *device.Account
	label   device.Label
	size    int64  // bytes that were asked for and charged
	data    []byte // the whole class, or size rounded up
}

var _ device.Buffer = (*buffer)(nil)

func (b *buffer) Size() int64  { return b.size }
func (b *buffer) Host() []byte { return b.data[:b.size:b.size] }

func (b *buffer) Retain() {
	if b.refs.Add(1) <= 1 {
		panic(fmt.Sprintf("cpu: retain of a buffer of %d bytes that was given back", b.size))
	}
}

func (b *buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		b.device.memory.put(b)
	case n < 0:
		panic(fmt.Sprintf("cpu: release of a buffer of %d bytes that was given back", b.size))
	}
}

// Alloc returns n elements at a multiple of 64 bytes. It fails with *device.OutOfMemory over the
// account's limit. A nil account is charged nothing.
func (d *Device) Alloc(account *device.Account, label device.Label, t device.DType, n int) (device.Slice, error) {
	if n < 0 {
		return device.Slice{}, fmt.Errorf("cpu: allocation of %d elements of %s for %s", n, t, label)
	}
	size := int64(n) * int64(t.Size())
	if account != nil {
		if err := account.Take(label, size); err != nil {
			return device.Slice{}, err
		}
	}
	b := d.reserves.get(account, size)
	if b == nil {
		b = d.memory.get(size)
	}
	d.memory.hold(1, size)
	b.device, b.account, b.label, b.size = d, account, label, size
	b.refs.Store(1)
	s := device.Slice{Buffer: b, Len: n, Type: t}
	if d.poison {
		// All bits set is NaN in f32 and f64 and -1 in i32.
		for i := range b.data {
			b.data[i] = 0xff
		}
	}
	return s, nil
}

// InUse is the number of buffers that are held, and the bytes that were asked for in them.
func (d *Device) InUse() (buffers int, bytes int64) {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	return d.memory.count, d.memory.bytes
}

func (m *memory) get(size int64) *buffer {
	c := classOf(size)
	m.mu.Lock()
	if n := len(m.free[c]); n > 0 {
		b := m.free[c][n-1]
		m.free[c] = m.free[c][:n-1]
		m.mu.Unlock()
		return b
	}
	m.mu.Unlock()
	return &buffer{class: c, data: aligned(classSize(c))}
}

// hold counts buffers that are taken, or given back where n is negative.
func (m *memory) hold(n int, bytes int64) {
	m.mu.Lock()
	m.count += n
	m.bytes += bytes
	m.mu.Unlock()
}

func (m *memory) put(b *buffer) {
	m.hold(-1, -b.size)
	if b.account != nil {
		b.account.Give(b.label, b.size)
		b.account = nil
	}
	if b.reserve != nil {
		b.reserve.put(b)
		return
	}
	m.mu.Lock()
	m.free[b.class] = append(m.free[b.class], b)
	m.mu.Unlock()
}

func (m *memory) forget() {
	m.mu.Lock()
	m.free = [classes][]*buffer{}
	m.mu.Unlock()
}

// Size classes: 64 bytes to 1 KiB in steps of 64, then eight steps for each power of two.
const (
	smallStep    = 64
	smallClasses = 16
	classes      = smallClasses + (63-10)*8
)

func classOf(size int64) int {
	if size <= smallStep*smallClasses {
		return max(0, int(size-1)/smallStep)
	}
	e := bits.Len64(uint64(size-1)) - 1 // 2^e < size <= 2^(e+1)
	return smallClasses + (e-10)*8 + int((size-1)>>(e-3))&7
}

func classSize(c int) int64 {
	if c < smallClasses {
		return int64(c+1) * smallStep
	}
	c -= smallClasses
	e := c/8 + 10
	return int64(c%8+9) << (e - 3)
}

// hugePage is the size of a huge page on most machines, hugeFrom the memory that is worth some.
const (
	hugePage = 2 << 20
	hugeFrom = 2 * hugePage
)

// aligned is new memory of size bytes. The huge pages inside large memory are asked for before it is
// touched: the rows of a large matrix are then in few pages.
func aligned(size int64) []byte {
	raw := make([]byte, size+align)
	b := raw[offTo(raw, align):][:size:size]
	if size >= hugeFrom {
		inside := b[offTo(b, hugePage):]
		adviseHuge(inside[:len(inside)&^(hugePage-1)])
	}
	return b
}

// offTo is the bytes from the start of b to the next multiple of a power of two.
func offTo(b []byte, multiple uintptr) uintptr {
	return -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (multiple - 1)
}
