package cpu

import (
	"math"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/random"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a device with one stream, and slices for a test.
type rig struct {
	t     testing.TB
	d     *Device
	s     device.Stream
	store device.DType // of tensors
	// rounds makes the numbers of tensors those that bfloat16 has.
	rounds bool
	seed   uint64
}

func newRig(t testing.TB, float device.DType, threads int) *rig {
	t.Helper()
	return newRigAt(t, float, Best, threads)
}

// newRigAt stores tensors in float: F32, F64, or BF16 on a device that works in F32.
func newRigAt(t testing.TB, store device.DType, level Level, threads int) *rig {
	t.Helper()
	float := store
	if store == device.BF16 {
		float = device.F32
	}
	d := New(Options{Float: float, Level: level, Poison: true})
	s, err := d.OpenStream("test", threads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return &rig{t: t, d: d, s: s, store: store}
}

// do runs kernels and waits; it returns the panic of the work, if any.
func (r *rig) try(work func(device.Kernels)) error {
	done := make(chan error, 1)
	r.s.Do(func(k device.Kernels) error { work(k); return nil }, func(err error) { done <- err })
	return <-done
}

func (r *rig) do(work func(device.Kernels)) {
	r.t.Helper()
	if err := r.try(work); err != nil {
		if p, ok := err.(*device.Panic); ok {
			r.t.Fatal(p, string(p.Stack))
		}
		r.t.Fatal(err)
	}
}

func (r *rig) allocOf(t device.DType, n int) device.Slice {
	r.t.Helper()
	s, err := r.d.Alloc(nil, device.Workspace, t, n)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) alloc(n int) device.Slice { return r.allocOf(r.store, n) }

// stat is memory for statistics and the like, which are of the device's type in every case.
func (r *rig) stat(n int) device.Slice { return r.allocOf(r.d.Float(), n) }

// of is a tensor with the given values.
func (r *rig) of(values []float64) device.Slice {
	if r.rounds {
		for i, v := range values {
			values[i] = float64(Round(float32(v)).Float32())
		}
	}
	return fill(r.alloc(len(values)), values)
}

// statOf is stat with the given values.
func (r *rig) statOf(values []float64) device.Slice { return fill(r.stat(len(values)), values) }

func fill(s device.Slice, values []float64) device.Slice {
	switch s.Type {
	case device.F32:
		for i, v := range values {
			Float32s(s)[i] = float32(v)
		}
	case device.BF16:
		for i, v := range values {
			BFloat16s(s)[i] = Round(float32(v))
		}
	default:
		copy(Float64s(s), values)
	}
	return s
}

func (r *rig) ints(values []int32) device.Slice {
	s := r.allocOf(device.I32, len(values))
	copy(Int32s(s), values)
	return s
}

// failer is a test, or a run of a property.
type failer interface {
	Helper()
	Fatalf(string, ...any)
}

// random is normal numbers, new ones with every call.
func (r *rig) random(n int) device.Slice { return r.of(r.normal(n)) }

func (r *rig) randomStat(n int) device.Slice { return r.statOf(r.normal(n)) }

func (r *rig) normal(n int) []float64 {
	r.seed++
	v := make([]float64, n)
	for i := range v {
		v[i] = random.Normal(r.seed, uint64(i))
	}
	return v
}

// values are the elements of a slice of floats as float64.
func values(s device.Slice) []float64 {
	out := make([]float64, s.Len)
	switch s.Type {
	case device.F32:
		for i, v := range Float32s(s) {
			out[i] = float64(v)
		}
	case device.BF16:
		for i, v := range BFloat16s(s) {
			out[i] = float64(v.Float32())
		}
	default:
		copy(out, Float64s(s))
	}
	return out
}

// bitsOf is the bits of a slice, for comparisons that tell -0 from 0 and one NaN from another.
func bitsOf(s device.Slice) []uint64 {
	out := make([]uint64, s.Len)
	for i := range out {
		switch s.Type {
		case device.F32:
			out[i] = uint64(math.Float32bits(Float32s(s)[i]))
		case device.BF16:
			out[i] = uint64(BFloat16s(s)[i])
		default:
			out[i] = math.Float64bits(Float64s(s)[i])
		}
	}
	return out
}
