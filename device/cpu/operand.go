package cpu

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
)

// operand is the memory of a tensor: of the type that the kernels work in, or of bfloat16. A tile works on rows (or other
// ranges) of it in its own type: it reads them, or takes room for what it writes and puts it in place. For memory of
// that type both are the memory itself; bfloat16 goes through a band of the worker's scratch memory.
//
// The zero operand stands for none.
type operand[T Float] struct {
	wide   []T
	narrow []BFloat16
}

func (o *operand[T]) none() bool { return o.wide == nil && o.narrow == nil }

func (o *operand[T]) len() int { return max(len(o.wide), len(o.narrow)) }

// sub is elements [lo, hi).
func (o *operand[T]) sub(lo, hi int) operand[T] {
	if o.narrow != nil {
		return operand[T]{narrow: o.narrow[lo:hi]}
	}
	return operand[T]{wide: o.wide[lo:hi]}
}

// read is elements [lo, hi), in band i if they have to be converted.
func (o *operand[T]) read(b *bands[T], i, lo, hi int) []T {
	if o.narrow == nil {
		return o.wide[lo:hi]
	}
	v := b.band(i)[:hi-lo]
	b.ops.read(v, o.narrow[lo:hi])
	return v
}

// room is memory for elements [lo, hi), which put stores.
func (o *operand[T]) room(b *bands[T], i, lo, hi int) []T {
	if o.narrow == nil {
		return o.wide[lo:hi]
	}
	return b.band(i)[:hi-lo]
}

// put stores what was written to the room of elements from lo on.
func (o *operand[T]) put(ops *rowOps[T], v []T, lo int) {
	if o.narrow != nil {
		ops.write(o.narrow[lo:lo+len(v)], v)
	}
}

// at is one element.
func (o *operand[T]) at(i int) T {
	if o.narrow != nil {
		return T(o.narrow[i].Float32())
	}
	return o.wide[i]
}

// set stores one element.
func (o *operand[T]) set(i int, v T) {
	if o.narrow != nil {
		o.narrow[i] = Round(float32(v))
	} else {
		o.wide[i] = v
	}
}

// bands are scratch memory of a worker, bands of n elements each.
type bands[T Float] struct {
	ops    *rowOps[T]
	memory []T
	n      int
}

func (b *bands[T]) band(i int) []T { return b.memory[i*b.n : (i+1)*b.n] }

// bandsOf is count bands, or none where all operands are wide: then nobody asks for one.
func bandsOf[T Float](w *worker, ops *rowOps[T], count, n int, operands ...*operand[T]) bands[T] {
	b := bands[T]{ops: ops, n: n}
	if anyNarrow(operands...) {
		b.memory = scratch[T](w, count*n)
	}
	return b
}

func anyNarrow[T Float](operands ...*operand[T]) bool {
	for _, o := range operands {
		if o.narrow != nil {
			return true
		}
	}
	return false
}

// block is how a kernel walks down the rows of a few columns: all rows where they lie or, where an operand is bfloat16,
// some rows after the other in a band.
type block[T Float] struct {
	bands[T]
	rows   int // at once
	stride int // bytes from row to row
	width  int // elements of a row where they lie
	per    int // and in a band
}

// blockElements is what a band of a block holds: bands stay in the first-level cache.
const blockElements = 4096

// columnsAtLeast is the columns of the tiles of sums over rows: a sum stays inside a tile, and a tile reads whole cache lines.
const columnsAtLeast = 64

// columnsOf is the columns of a tile of a kernel that sums over rows. A tile of few columns waits for memory at every row, so
// tiles are as wide as leaves one for each worker. Each column is summed on its own: the cut changes no bit.
func columnsOf(p *pool, columns int) int {
	each := tilesOf(tilesOf(columns, len(p.workers)), columnsAtLeast) * columnsAtLeast
	return max(columnsAtLeast, min(each, blockElements/2))
}

// blockOf is for tiles of per columns of rows of width elements.
func blockOf[T Float](w *worker, ops *rowOps[T], count, rows, width, per int, operands ...*operand[T]) block[T] {
	if !anyNarrow(operands...) {
		return block[T]{rows: max(1, rows), stride: bytesOf[T](width), width: width}
	}
	return block[T]{bandsOf(w, ops, count, blockElements, operands...), blockElements / per, bytesOf[T](per), width, per}
}

// read is columns [lo, hi) of rows [r, end), where b.stride applies.
func (b *block[T]) read(o *operand[T], i, r, end, lo, hi int) *T {
	if b.memory == nil {
		return &o.wide[r*b.width+lo]
	}
	band := b.band(i)
	for j := r; j < end; j++ {
		dst := band[(j-r)*b.per:][:hi-lo]
		if o.narrow != nil {
			b.ops.read(dst, o.narrow[j*b.width+lo:j*b.width+hi])
		} else {
			copy(dst, o.wide[j*b.width+lo:])
		}
	}
	return &band[0]
}

// pieceElements is what an element-wise kernel converts at once: its bands stay in the first-level cache.
const pieceElements = 1024

// piece is how many of n elements an element-wise kernel does at once.
func piece[T Float](n int, operands ...*operand[T]) int {
	if anyNarrow(operands...) {
		return min(n, pieceElements)
	}
	return n
}

// tensor is the memory of s, whatever its length, of the type of the device or of bfloat16 where that is float32.
func (k *kernels[T]) tensor(s device.Slice) operand[T] {
	if k.t == device.F32 && !s.IsZero() && s.Type == device.BF16 {
		v := BFloat16s(s)
		if v == nil {
			v = []BFloat16{}
		}
		return operand[T]{narrow: v}
	}
	v := view[T](s, k.t)
	if v == nil {
		v = []T{}
	}
	return operand[T]{wide: v}
}

// of is the memory of s, which must have exactly n elements.
func (k *kernels[T]) of(kernel, name string, s device.Slice, n int) operand[T] {
	o := k.tensor(s)
	if o.len() != n {
		panic(fmt.Sprintf("cpu: %s: %s has %d elements, must be %d", kernel, name, o.len(), n))
	}
	return o
}

// ofAtLeast is the memory of s, which must have n elements or more; the rest is cut off.
func (k *kernels[T]) ofAtLeast(kernel, name string, s device.Slice, n int) operand[T] {
	o := k.tensor(s)
	if o.len() < n {
		panic(fmt.Sprintf("cpu: %s: %s has %d elements, must be %d or more", kernel, name, o.len(), n))
	}
	return o.sub(0, n)
}

// ofOptional is of for a slice that may be none.
func (k *kernels[T]) ofOptional(kernel, name string, s device.Slice, n int) operand[T] {
	if s.IsZero() {
		return operand[T]{}
	}
	return k.of(kernel, name, s, n)
}
