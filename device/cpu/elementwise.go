package cpu

import (
	"fmt"
	"math"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/random"
)

type fillTask[T Float] struct {
	dst []T
	v   T
}

func (t *fillTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.dst), tileElements)
	dst := t.dst[lo:hi]
	for j := range dst {
		dst[j] = t.v
	}
}

type fillIntTask struct {
	dst []int32
	v   int32
}

func (t *fillIntTask) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.dst), tileElements)
	dst := t.dst[lo:hi]
	for j := range dst {
		dst[j] = t.v
	}
}

func (k *kernels[T]) Fill(dst device.Slice, v float64) {
	switch {
	case dst.Type == device.I32:
		k.fillInt = fillIntTask{Int32s(dst), int32(v)}
		k.pool.run(&k.fillInt, tilesOf(dst.Len, tileElements))
	case dst.Type != k.t && dst.Type == device.F64:
		// A few sums are float64 on a float32 device; they are short.
		d := Float64s(dst)
		for i := range d {
			d[i] = v
		}
	default:
		k.fill = fillTask[T]{view[T](dst, k.t), T(v)}
		k.pool.run(&k.fill, tilesOf(dst.Len, tileElements))
	}
}

type copyTask struct{ dst, src []byte }

// copyBytes is the bytes in a tile of a copy.
const copyBytes = 64 << 10

func (t *copyTask) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.dst), copyBytes)
	copy(t.dst[lo:hi], t.src[lo:hi])
}

func (k *kernels[T]) copyOf(dst, src []byte) {
	k.copy = copyTask{dst, src}
	k.pool.run(&k.copy, tilesOf(len(dst), copyBytes))
	k.copy = copyTask{}
}

func (k *kernels[T]) Copy(dst, src device.Slice) {
	if dst.Len != src.Len || dst.Type != src.Type {
		panic(fmt.Sprintf("cpu: Copy: dst is %d of %s, src %d of %s", dst.Len, dst.Type, src.Len, src.Type))
	}
	k.copyOf(dst.HostBytes(), src.HostBytes())
}

func (k *kernels[T]) Upload(dst device.Slice, src []byte) {
	if dst.Bytes() != int64(len(src)) {
		panic(fmt.Sprintf("cpu: Upload: dst has %d bytes, src %d", dst.Bytes(), len(src)))
	}
	k.copyOf(dst.HostBytes(), src)
}

func (k *kernels[T]) Download(dst []byte, src device.Slice) {
	if src.Bytes() != int64(len(dst)) {
		panic(fmt.Sprintf("cpu: Download: dst has %d bytes, src %d", len(dst), src.Bytes()))
	}
	k.copyOf(dst, src.HostBytes())
}

type addTask[T Float] struct {
	ops       *rowOps[T]
	dst, a, b []T
}

func (t *addTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.dst), tileElements)
	t.ops.add(first(t.dst[lo:hi]), first(t.a[lo:hi]), first(t.b[lo:hi]), hi-lo)
}

func (k *kernels[T]) Add(dst, a, b device.Slice) {
	if dst.Type != k.t && dst.Type == device.F64 {
		d := Float64s(dst)
		x, y := float64s("Add", "a", a, len(d)), float64s("Add", "b", b, len(d))
		for i := range d {
			d[i] = x[i] + y[i]
		}
		return
	}
	k.add = addTask[T]{k.ops, view[T](dst, k.t), k.in("Add", "a", a, dst.Len), k.in("Add", "b", b, dst.Len)}
	k.pool.run(&k.add, tilesOf(dst.Len, tileElements))
}

// geluElements is fewer than tileElements because an exponential costs as much as tens of sums.
const geluElements = tileElements / 4

type geluTask[T Float] struct {
	ops  *rowOps[T]
	y, x []T
}

func (t *geluTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.y), geluElements)
	t.ops.gelu(first(t.y[lo:hi]), first(t.x[lo:hi]), hi-lo)
}

func (k *kernels[T]) GELU(y, x device.Slice) {
	k.gelu = geluTask[T]{k.ops, view[T](y, k.t), k.in("GELU", "x", x, y.Len)}
	k.pool.run(&k.gelu, tilesOf(y.Len, geluElements))
}

type geluBackwardTask[T Float] struct {
	ops       *rowOps[T]
	dx, dy, x []T
}

func (t *geluBackwardTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.dx), geluElements)
	t.ops.geluBackward(first(t.dx[lo:hi]), first(t.dy[lo:hi]), first(t.x[lo:hi]), hi-lo)
}

func (k *kernels[T]) GELUBackward(dx, dy, x device.Slice) {
	k.geluBackward = geluBackwardTask[T]{k.ops, view[T](dx, k.t),
		k.in("GELUBackward", "dy", dy, dx.Len), k.in("GELUBackward", "x", x, dx.Len)}
	k.pool.run(&k.geluBackward, tilesOf(dx.Len, geluElements))
}

type dropoutTask[T Float] struct {
	ops            *rowOps[T]
	y, residual, x []T
	d              device.Dropout
	below          uint64 // a 32-bit word under this drops the element
	scale          T
}

// tile draws block e/4 of (Key, sample) for elements e = 4b..4b+3 of a sample.
func (t *dropoutTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, len(t.y), tileElements)
	for lo < hi {
		sample, e := t.d.Sample+uint64(lo/t.d.PerSample), lo%t.d.PerSample
		n := min(t.d.PerSample-e, hi-lo)
		done := t.sixtyFours(w, sample, e, lo, n)
		t.few(sample, e+done, lo+done, n-done)
		lo += n
	}
}

// few does n elements, from element e of the sample and element j of x on.
func (t *dropoutTask[T]) few(sample uint64, e, j, n int) {
	for end := j + n; j < end; {
		bits := random.Block(t.d.Key, sample, uint64(e/4))
		for k := min(4-e%4, end-j); k > 0; k-- {
			var v T
			if uint64(bits[e%4]) >= t.below {
				v = T(t.x[j] * t.scale)
			}
			if t.residual != nil {
				v += t.residual[j]
			}
			t.y[j] = v
			j++
			e++
		}
	}
}

// sixtyFours does as many times sixty-four elements as there are, where the device has a kernel for
// it, and returns how many elements are done. Its parameters are the keys of ten rounds, the number of
// the first block, the sample, the bound and the scale, in words of 32 bits.
func (t *dropoutTask[T]) sixtyFours(w *worker, sample uint64, e, j, n int) int {
	groups := n / 64
	if t.ops.dropout == nil || groups == 0 || e%4 != 0 || (e+n)/4 >= math.MaxUint32-16 || t.below > math.MaxUint32 {
		return 0
	}
	p := &w.params
	keys := random.RoundKeys(t.d.Key)
	copy(p[:], keys[:])
	p[20], p[21], p[22], p[23] = uint32(e/4), 0, uint32(sample), uint32(sample>>32)
	p[24], p[25] = uint32(t.below), math.Float32bits(float32(t.scale))
	if t.residual == nil {
		t.ops.dropout(&t.y[j], &t.x[j], &p[0], groups)
	} else {
		t.ops.dropoutAdd(&t.y[j], &t.x[j], &t.residual[j], &p[0], groups)
	}
	return 64 * groups
}

func (k *kernels[T]) Dropout(y, residual, x device.Slice, d device.Dropout) {
	if !(d.P >= 0 && d.P < 1) || d.P > 0 && d.PerSample < 1 {
		panic(fmt.Sprintf("cpu: Dropout: p %v with %d elements a sample; p must be in [0,1), and a sample not empty", d.P, d.PerSample))
	}
	if d.P == 0 {
		if residual.IsZero() {
			if y != x {
				k.Copy(y, x)
			}
			return
		}
		k.Add(y, residual, x)
		return
	}
	k.dropout = dropoutTask[T]{k.ops, view[T](y, k.t), k.optional("Dropout", "residual", residual, y.Len), k.in("Dropout", "x", x, y.Len),
		d, uint64(math.Round(d.P * (1 << 32))), T(1 / (1 - d.P))}
	k.pool.run(&k.dropout, tilesOf(y.Len, tileElements))
}
