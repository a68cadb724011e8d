package cpu

import (
	"fmt"
	"unsafe"

	"github.com/troupe-train/troupe/device"
)

// kernels are the kernels of one stream. Each kernel fills in its task and lets the pool run the
// tiles; the tasks are fields so that a call takes nothing from the heap.
type kernels[T Float] struct {
	pool *pool
	t    device.DType
	ops  *rowOps[T]
	// blocked is the product where there are vector kernels, which is for float32 only.
	blocked             *blockedTask
	attentionBlocks     attentionBlocksTask
	attentionBlocksBack attentionBlocksBackTask

	fill           fillTask[T]
	fillInt        fillTask[int32]
	fillHalf       fillTask[BFloat16]
	copy           copyTask
	convert        convertTask[T]
	add            pairTask[T]
	gelu           geluTask[T]
	geluBackward   pairTask[T]
	dropout        dropoutTask[T]
	matmul         matmulTask[T]
	sumRows        sumRowsTask[T]
	norm           normTask[T]
	normInput      normInputTask[T]
	normWeight     normWeightTask[T]
	rms            rmsTask[T]
	rmsInput       rmsInputTask[T]
	rmsWeight      rmsWeightTask[T]
	swiglu         swigluTask[T]
	swigluBack     swigluBackTask[T]
	rope           ropeTask[T]
	angles         angles[T]
	attention      attentionTask[T]
	attentionBack  attentionBackTask[T]
	embed          embedTask[T]
	embedTable     embedTableTask[T]
	embedPositions embedPositionsTask[T]
	entropy        entropyTask[T]
	entropyBack    entropyBackTask[T]
	squares        squaresTask[T]
	adamw          adamwTask[T]
	sgd            sgdTask[T]
}

func newKernels[T Float](p *pool, t device.DType, ops *rowOps[T], blocked *blockedTask) *kernels[T] {
	return &kernels[T]{pool: p, t: t, ops: ops, blocked: blocked}
}

// bytesOf is the bytes of n elements.
func bytesOf[T Float](n int) int {
	var z T
	return n * int(unsafe.Sizeof(z))
}

// in is the memory of s, which must have exactly n elements of the device's type.
func (k *kernels[T]) in(kernel, name string, s device.Slice, n int) []T {
	v := view[T](s, k.t)
	if len(v) != n {
		panic(fmt.Sprintf("cpu: %s: %s has %d elements, must be %d", kernel, name, len(v), n))
	}
	return v
}

// atLeast is the memory of s, which must have n elements or more; the rest is cut off.
func (k *kernels[T]) atLeast(kernel, name string, s device.Slice, n int) []T {
	v := view[T](s, k.t)
	if len(v) < n {
		panic(fmt.Sprintf("cpu: %s: %s has %d elements, must be %d or more", kernel, name, len(v), n))
	}
	return v[:n]
}

func ints(kernel, name string, s device.Slice, n int) []int32 {
	v := Int32s(s)
	if len(v) != n {
		panic(fmt.Sprintf("cpu: %s: %s has %d elements, must be %d", kernel, name, len(v), n))
	}
	return v
}

func float64s(kernel, name string, s device.Slice, n int) []float64 {
	v := Float64s(s)
	if len(v) != n {
		panic(fmt.Sprintf("cpu: %s: %s has %d elements, must be %d", kernel, name, len(v), n))
	}
	return v
}

// scratch is n elements of the worker's memory with undefined contents, valid until the next call.
func scratch[T Float](w *worker, n int) []T {
	w.scratch = grow(w.scratch, bytesOf[T](n))
	return elements[T](w.scratch, n)
}

// grow returns b, or larger memory with undefined contents where b has less than n bytes.
func grow(b []byte, n int) []byte {
	if len(b) >= n {
		return b
	}
	return aligned(classSize(classOf(int64(n))))
}

func elements[T Float](b []byte, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// tileElements is how many elements an element-wise kernel gives to a tile: enough to be worth
// a hand-over, few enough to share a vector of some ten thousand.
const tileElements = 8192

func tilesOf(n, per int) int { return (n + per - 1) / per }

// span is the range of tile i of n things, per to a tile.
func span(i, n, per int) (lo, hi int) { return i * per, min((i+1)*per, n) }

// rowsPerTile cuts rows of the given width into tiles of about tileElements.
func rowsPerTile(width int) int { return max(1, tileElements/max(1, width)) }
