package cpu

import (
	"fmt"
	"unsafe"

	"github.com/troupe-train/troupe/device"
)

// Float is an element type that the kernels work in.
type Float interface{ float32 | float64 }

// Float32s is the memory of s, which must be of type F32 in memory of the CPU.
func Float32s(s device.Slice) []float32 { return view[float32](s, device.F32) }

// Float64s is the memory of s, which must be of type F64 in memory of the CPU.
func Float64s(s device.Slice) []float64 { return view[float64](s, device.F64) }

// Int32s is the memory of s, which must be of type I32 in memory of the CPU.
func Int32s(s device.Slice) []int32 { return view[int32](s, device.I32) }

func view[E float32 | float64 | int32 | BFloat16](s device.Slice, t device.DType) []E {
	if s.IsZero() {
		panic(fmt.Sprintf("cpu: none given where a slice of %s is needed", t))
	}
	if s.Type != t {
		panic(fmt.Sprintf("cpu: a slice of %s where %s is needed", s.Type, t))
	}
	if s.Len == 0 {
		return nil
	}
	h := s.HostBytes()
	if h == nil {
		panic("cpu: a slice that is not in memory of the CPU")
	}
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(h))), s.Len)
}
