package allreduce_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-train/troupe/allreduce"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/plan"
)

// bench is a device with a stream, and the memory that a test holds on it.
type bench struct {
	device  *cpu.Device
	stream  device.Stream
	account *device.Account
}

func newBench(t *testing.T) *bench {
	t.Helper()
	d := cpu.New(cpu.Options{Poison: true})
	s, err := d.OpenStream("test", 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bench{d, s, device.NewAccount("test", 0)}
}

// do runs work on the stream and waits for it.
func (b *bench) do(work func(device.Kernels) error) error {
	done := make(chan error, 1)
	b.stream.Do(work, func(err error) { done <- err })
	return <-done
}

func (b *bench) tensor(values []float32) device.Slice {
	s := b.alloc(len(values))
	copy(cpu.Float32s(s), values)
	return s
}

func (b *bench) alloc(n int) device.Slice {
	s, err := b.device.Alloc(b.account, device.Gradients, device.F32, n)
	if err != nil {
		panic(err)
	}
	return s
}

// part is a part with its tensor.
type part struct {
	allreduce.Part
	device.Slice
}

// reduce sums parts, the second time with an order that has been used.
func (b *bench) reduce(n int, parts []part, alloc func() (device.Slice, error)) (sum device.Slice, err error) {
	names := make([]allreduce.Part, len(parts))
	slices := make([]device.Slice, len(parts))
	for i, p := range parts {
		names[i], slices[i] = p.Part, p.Slice
	}
	order, err := allreduce.NewSum(n, names)
	if err != nil {
		return device.Slice{}, err
	}
	err = b.do(func(k device.Kernels) error {
		if sum, err = order.Of(k, slices, alloc); err != nil {
			return err
		}
		sum.Release()
		sum, err = order.Of(k, slices, alloc)
		return err
	})
	return sum, err
}

// treeSum is the sum over the node [lo, hi) by its definition: the lower half is the bigger one.
func treeSum(leaves [][]float32, lo, hi int) []float32 {
	if hi-lo == 1 {
		return slices.Clone(leaves[lo])
	}
	mid := lo + (hi-lo+1)/2
	a, b := treeSum(leaves, lo, mid), treeSum(leaves, mid, hi)
	sum := make([]float32, len(a))
	for i := range sum {
		sum[i] = a[i] + b[i]
	}
	return sum
}

// TestReduce: however the micro-batches are shared out, the sum has the bits of the tree over all of
// them, the parts stay as they were, and no memory but the result is left.
func TestReduce(t *testing.T) {
	b := newBench(t)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "micro-batches")
		uses := rapid.IntRange(1, 3).Draw(t, "uses")
		length := rapid.IntRange(1, 5).Draw(t, "length")
		var parts []part
		var want []float32
		for use := range uses {
			leaves := make([][]float32, n)
			for m := range leaves {
				leaves[m] = rapid.SliceOfN(rapid.Float32Range(-1e6, 1e6), length, length).Draw(t, "leaf")
			}
			sum := treeSum(leaves, 0, n)
			if use > 0 {
				for i := range sum {
					sum[i] = want[i] + sum[i]
				}
			}
			want = sum
			for lo := 0; lo < n; {
				hi := rapid.IntRange(lo+1, n).Draw(t, "end of share")
				for _, node := range plan.Cover(plan.Range{Lo: lo, Hi: hi}, n) {
					parts = append(parts, part{allreduce.Part{Use: use, Node: node}, b.tensor(treeSum(leaves, node.Lo, node.Hi))})
				}
				lo = hi
			}
		}
		before := make([][]float32, len(parts))
		for i, p := range parts {
			before[i] = slices.Clone(cpu.Float32s(p.Slice))
		}
		got, err := b.reduce(n, parts, func() (device.Slice, error) { return b.alloc(length), nil })
		if err != nil {
			t.Fatal(err)
		}
		same(t, "sum", cpu.Float32s(got), want)
		for i, p := range parts {
			if len(parts) > 1 {
				same(t, "part", cpu.Float32s(p.Slice), before[i])
			}
			p.Slice.Release()
		}
		if held := b.account.Held(); held != int64(4*length) {
			t.Fatalf("%d bytes are held beside a result of %d", held, 4*length)
		}
		got.Release()
	})
}

func same(t *rapid.T, what string, got, want []float32) {
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s[%d] is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestReduceErrors: parts that do not cover the micro-batches, and memory that runs out at any
// allocation, are errors after which nothing is held.
func TestReduceErrors(t *testing.T) {
	b := newBench(t)
	of := func(use, lo, hi int) part {
		return part{allreduce.Part{Use: use, Node: plan.Range{Lo: lo, Hi: hi}}, b.tensor([]float32{1})}
	}
	leaves := func(n int) []part {
		var out []part
		for m := range n {
			out = append(out, of(0, m, m+1))
		}
		return out
	}
	full := errors.New("full")
	for _, c := range []struct {
		name  string
		n     int // micro-batches
		parts []part
		room  int // allocations that succeed
		want  string
	}{
		{"nothing", 3, nil, 9, "nothing to sum"},
		{"a gap", 3, []part{of(0, 0, 1), of(0, 2, 3)}, 9, "do not cover"},
		{"too few", 3, []part{of(0, 0, 2)}, 9, "do not cover"},
		{"a gap in the second use", 3, []part{of(0, 0, 1), of(0, 1, 2), of(0, 2, 3), of(1, 0, 1)}, 9, "do not cover"},
		{"uses out of order", 3, []part{of(1, 0, 2), of(1, 2, 3), of(0, 0, 2), of(0, 2, 3)}, 9, "comes after"},
		{"no memory", 3, []part{of(0, 0, 1), of(0, 1, 2), of(0, 2, 3)}, 0, "full"},
		{"memory for one use", 3, []part{of(0, 0, 2), of(0, 2, 3), of(1, 0, 2), of(1, 2, 3)}, 1, "full"},
		{"memory for one child", 3, []part{of(0, 0, 3), of(1, 0, 1), of(1, 1, 2), of(1, 2, 3)}, 0, "full"},
		{"memory for one half", 8, leaves(8), 2, "full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			held := b.account.Held()
			_, err := b.reduce(c.n, c.parts, func() (device.Slice, error) {
				if c.room--; c.room < 0 {
					return device.Slice{}, full
				}
				return b.alloc(1), nil
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
			if b.account.Held() != held {
				t.Errorf("%d bytes are held, %d before", b.account.Held(), held)
			}
		})
	}
}

// TestSumAgain: a sum in an order that was made before takes nothing from the Go heap.
func TestSumAgain(t *testing.T) {
	b := newBench(t)
	var names []allreduce.Part
	var tensors []device.Slice
	for use := range 2 {
		for m := range 5 {
			names = append(names, allreduce.Part{Use: use, Node: plan.Range{Lo: m, Hi: m + 1}})
			tensors = append(tensors, b.tensor([]float32{1, 2, 3}))
		}
	}
	order, err := allreduce.NewSum(5, names)
	if err != nil {
		t.Fatal(err)
	}
	alloc := func() (device.Slice, error) { return b.device.Alloc(b.account, device.Gradients, device.F32, 3) }
	err = b.do(func(k device.Kernels) error {
		var failed error
		if n := testing.AllocsPerRun(20, func() {
			sum, err := order.Of(k, tensors, alloc)
			if err != nil {
				failed = err
				return
			}
			sum.Release()
		}); n != 0 {
			t.Errorf("a sum takes %v objects", n)
		}
		if _, err := order.Of(k, tensors[1:], alloc); err == nil {
			t.Error("a part is missing and nobody says so")
		}
		return failed
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestGather(t *testing.T) {
	b := newBench(t)
	dst := b.tensor(make([]float32, 6))
	err := b.do(func(k device.Kernels) error {
		allreduce.Gather(k, dst, []plan.Range{{Lo: 4, Hi: 6}, {Lo: 0, Hi: 4}}, []device.Slice{b.tensor([]float32{5, 6}), b.tensor([]float32{1, 2, 3, 4})})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range cpu.Float32s(dst) {
		if v != float32(i+1) {
			t.Errorf("element %d is %v", i, v)
		}
	}
}
