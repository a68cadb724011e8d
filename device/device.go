package device

import (
	"context"
	"fmt"
)

// DType is the type of the elements of a Slice.
type DType uint8

const (
	F32 DType = iota + 1
	F64
	I32
	// BF16 is bfloat16: the upper half of a float32. It is a type to store in; kernels sum in float32.
	BF16
)

// Size returns the bytes of one element.
func (t DType) Size() int {
	switch t {
	case F32, I32:
		return 4
	case F64:
		return 8
	case BF16:
		return 2
	}
	panic(fmt.Sprintf("device: unknown element type %d", uint8(t)))
}

func (t DType) String() string {
	switch t {
	case F32:
		return "f32"
	case F64:
		return "f64"
	case I32:
		return "i32"
	case BF16:
		return "bf16"
	}
	return fmt.Sprintf("DType(%d)", uint8(t))
}

// Buffer is a region of a device's memory. It starts with one reference; the last Release gives
// the memory back to the device and to the account it was charged to. A Buffer that has been
// handed to another actor is immutable.
type Buffer interface {
	// Size in bytes.
	Size() int64
	Retain()
	Release()
	// Host returns the memory itself where the CPU can address it, and nil where it cannot.
	Host() []byte
}

// Slice is a view of Len elements of a buffer that starts Offset elements in.
// The zero Slice stands for "none" where a kernel allows it.
type Slice struct {
	Buffer Buffer
	Offset int
	Len    int
	Type   DType
}

// IsZero reports whether s is the zero Slice.
func (s Slice) IsZero() bool { return s.Buffer == nil }

// Sub returns the view of n elements that starts off elements into s.
func (s Slice) Sub(off, n int) Slice {
	if off < 0 || n < 0 || off+n > s.Len {
		panic(fmt.Sprintf("device: view [%d:%d] of a slice of %d elements", off, off+n, s.Len))
	}
	s.Offset += off
	s.Len = n
	return s
}

// Bytes is the size of the view.
func (s Slice) Bytes() int64 { return int64(s.Len) * int64(s.Type.Size()) }

// Retain and Release count references on the buffer behind the view.
func (s Slice) Retain()  { s.Buffer.Retain() }
func (s Slice) Release() { s.Buffer.Release() }

// HostBytes returns the bytes of the view where the CPU can address them, and nil where it cannot.
func (s Slice) HostBytes() []byte {
	h := s.Buffer.Host()
	if h == nil {
		return nil
	}
	z := s.Type.Size()
	return h[s.Offset*z : (s.Offset+s.Len)*z : (s.Offset+s.Len)*z]
}

// Device allocates memory and opens streams.
type Device interface {
	Name() string
	// Float is the type that the floating-point kernels of this device work in: F32, or F64 for
	// gradient checks on the CPU. Where it is F32, tensors may be stored as BF16: see Kernels.
	Float() DType
	// Alloc returns n elements with undefined contents, charged to account under label.
	// The error is an *OutOfMemory when the account's limit does not allow it.
	Alloc(account *Account, label Label, t DType, n int) (Slice, error)
	// OpenStream starts a stream whose kernels use at most threads threads.
	OpenStream(name string, threads int) (Stream, error)
	Close() error
}

// Reserver is a Device that sets memory aside for an account before there is use for it.
type Reserver interface {
	// Reserve sets memory aside for an account that holds no more than bytes at once. What it is charged is
	// what it allocates, as ever. free gives the memory back when the account holds nothing any more.
	Reserve(account *Account, bytes int64) (free func(), err error)
}

// Stream runs work in the order in which it was queued. Do returns at once.
type Stream interface {
	// Do queues work. Inside work, and only there, kernels may be issued; they take effect in the
	// order of the calls. When everything that work issued is complete, done is called with work's
	// error; a panic inside work arrives there as a *Panic. done must not block.
	Do(work func(Kernels) error, done func(error))
	// Record returns an event that completes when all that has been queued so far is complete.
	Record() Event
	// Wait makes what is queued later wait for the event, which may belong to another stream.
	Wait(Event)
	// Close waits for what has been queued and ends the stream.
	Close() error
}

// Event is a point in a stream.
type Event interface {
	Done() bool
	Wait(ctx context.Context) error
}

// Panic is the error of work that panicked.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }
