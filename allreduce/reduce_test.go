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
		var parts []allreduce.Part
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
					parts = append(parts, allreduce.Part{Use: use, Node: node, Slice: b.tensor(treeSum(leaves, node.Lo, node.Hi))})
				}
				lo = hi
			}
		}
		before := make([][]float32, len(parts))
		for i, p := range parts {
			before[i] = slices.Clone(cpu.Float32s(p.Slice))
		}
		var got device.Slice
		err := b.do(func(k device.Kernels) (err error) {
			got, err = allreduce.Reduce(k, n, parts, func() (device.Slice, error) { return b.alloc(length), nil })
			return err
		})
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
	part := func(use, lo, hi int) allreduce.Part {
		return allreduce.Part{Use: use, Node: plan.Range{Lo: lo, Hi: hi}, Slice: b.tensor([]float32{1})}
	}
	leaves := func(n int) []allreduce.Part {
		var out []allreduce.Part
		for m := range n {
			out = append(out, part(0, m, m+1))
		}
		return out
	}
	full := errors.New("full")
	for _, c := range []struct {
		name  string
		n     int // micro-batches
		parts []allreduce.Part
		room  int // allocations that succeed
		want  string
	}{
		{"nothing", 3, nil, 9, "nothing to sum"},
		{"a gap", 3, []allreduce.Part{part(0, 0, 1), part(0, 2, 3)}, 9, "do not cover"},
		{"too few", 3, []allreduce.Part{part(0, 0, 2)}, 9, "do not cover"},
		{"a gap in the second use", 3, []allreduce.Part{part(0, 0, 1), part(0, 1, 2), part(0, 2, 3), part(1, 0, 1)}, 9, "do not cover"},
		{"uses out of order", 3, []allreduce.Part{part(1, 0, 2), part(1, 2, 3), part(0, 0, 2), part(0, 2, 3)}, 9, "comes after"},
		{"no memory", 3, []allreduce.Part{part(0, 0, 1), part(0, 1, 2), part(0, 2, 3)}, 0, "full"},
		{"memory for one use", 3, []allreduce.Part{part(0, 0, 2), part(0, 2, 3), part(1, 0, 2), part(1, 2, 3)}, 1, "full"},
		{"memory for one child", 3, []allreduce.Part{part(0, 0, 3), part(1, 0, 1), part(1, 1, 2), part(1, 2, 3)}, 0, "full"},
		{"memory for one half", 8, leaves(8), 2, "full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			held := b.account.Held()
			err := b.do(func(k device.Kernels) error {
				_, err := allreduce.Reduce(k, c.n, c.parts, func() (device.Slice, error) {
					if c.room--; c.room < 0 {
						return device.Slice{}, full
					}
					return b.alloc(1), nil
				})
				return err
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
