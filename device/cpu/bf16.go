package cpu

import (
	"math"
	"unsafe"

	"github.com/troupe-train/troupe/device"
)

// BFloat16 is the upper half of a float32: its sign, its exponent and 7 bits of its fraction. Every one is a float32.
type BFloat16 uint16

// Round is the BFloat16 nearest to v, and the even one of two: as IEEE arithmetic rounds, subnormals and overflow
// included. NaN stays NaN, with its sign.
func Round(v float32) BFloat16 {
	u := math.Float32bits(v)
	if v != v {
		return BFloat16(u>>16) | 0x40
	}
	return BFloat16((u + 0x7fff + u>>16&1) >> 16)
}

// Float32 is the number itself.
func (b BFloat16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// BFloat16s is the memory of s, which must be of type BF16 in memory of the CPU.
func BFloat16s(s device.Slice) []BFloat16 { return view[BFloat16](s, device.BF16) }

func widenBlocks[T Float](dst *T, src *BFloat16, n int) {
	d := unsafe.Slice(dst, 16*n)
	for i, v := range unsafe.Slice(src, 16*n) {
		d[i] = T(v.Float32())
	}
}

func narrowBlocks[T Float](dst *BFloat16, src *T, n int) {
	d := unsafe.Slice(dst, 16*n)
	for i, v := range unsafe.Slice(src, 16*n) {
		d[i] = Round(float32(v))
	}
}

// read writes numbers of any count to dst.
func (o *rowOps[T]) read(dst []T, src []BFloat16) {
	n := len(src) / 16
	if n > 0 {
		o.widen(&dst[0], &src[0], n)
	}
	for i := 16 * n; i < len(src); i++ {
		dst[i] = T(src[i].Float32())
	}
}

// write rounds numbers of any count to dst.
func (o *rowOps[T]) write(dst []BFloat16, src []T) {
	n := len(src) / 16
	if n > 0 {
		o.narrow(&dst[0], &src[0], n)
	}
	for i := 16 * n; i < len(src); i++ {
		dst[i] = Round(float32(src[i]))
	}
}
