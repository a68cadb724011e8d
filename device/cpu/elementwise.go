package cpu

import (
	"fmt"
	"math"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/random"
)

type fillTask[E float32 | float64 | int32 | BFloat16] struct {
	dst []E
	v   E
}

func (t *fillTask[E]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.dst), tileElements)
	dst := t.dst[lo:hi]
	for j := range dst {
		dst[j] = t.v
	}
}

func (k *kernels[T]) Fill(dst device.Slice, v float64) {
	switch {
	case dst.Type == device.I32:
		k.fillInt = fillTask[int32]{Int32s(dst), int32(v)}
		k.pool.run(&k.fillInt, tilesOf(dst.Len, tileElements))
	case dst.Type == device.BF16 && k.t == device.F32:
		k.fillHalf = fillTask[BFloat16]{BFloat16s(dst), Round(float32(v))}
		k.pool.run(&k.fillHalf, tilesOf(dst.Len, tileElements))
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

type convertTask[T Float] struct {
	ops      *rowOps[T]
	dst, src operand[T]
}

func (t *convertTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.dst.len(), tileElements)
	if t.src.narrow != nil {
		t.ops.read(t.dst.wide[lo:hi], t.src.narrow[lo:hi])
	} else {
		t.ops.write(t.dst.narrow[lo:hi], t.src.wide[lo:hi])
	}
}

func (k *kernels[T]) Convert(dst, src device.Slice) {
	k.convert = convertTask[T]{k.ops, k.tensor(dst), k.of("Convert", "src", src, dst.Len)}
	if dst.Type == src.Type {
		k.Copy(dst, src)
		return
	}
	k.pool.run(&k.convert, tilesOf(dst.Len, tileElements))
}

// pairTask makes each element of dst of those at its place in a and b.
type pairTask[T Float] struct {
	ops       *rowOps[T]
	row       func(dst, a, b *T, n int)
	per       int // elements of a tile
	dst, a, b operand[T]
}

func (t *pairTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.dst.len(), t.per)
	n := piece(hi-lo, &t.dst, &t.a, &t.b)
	s := bandsOf(w, t.ops, 3, n, &t.dst, &t.a, &t.b)
	for ; lo < hi; lo += n {
		end := min(lo+n, hi)
		d := t.dst.room(&s, 0, lo, end)
		t.row(first(d), first(t.a.read(&s, 1, lo, end)), first(t.b.read(&s, 2, lo, end)), end-lo)
		t.dst.put(t.ops, d, lo)
	}
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
	k.add = pairTask[T]{k.ops, k.ops.add, tileElements, k.tensor(dst), k.of("Add", "a", a, dst.Len), k.of("Add", "b", b, dst.Len)}
	k.pool.run(&k.add, tilesOf(dst.Len, tileElements))
}

// geluElements is fewer than tileElements because an exponential costs as much as tens of sums.
const geluElements = tileElements / 4

type geluTask[T Float] struct {
	ops  *rowOps[T]
	y, x operand[T]
}

func (t *geluTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.y.len(), geluElements)
	n := piece(hi-lo, &t.y, &t.x)
	s := bandsOf(w, t.ops, 2, n, &t.y, &t.x)
	for ; lo < hi; lo += n {
		end := min(lo+n, hi)
		y := t.y.room(&s, 0, lo, end)
		t.ops.gelu(first(y), first(t.x.read(&s, 1, lo, end)), end-lo)
		t.y.put(t.ops, y, lo)
	}
}

func (k *kernels[T]) GELU(y, x device.Slice) {
	k.gelu = geluTask[T]{k.ops, k.tensor(y), k.of("GELU", "x", x, y.Len)}
	k.pool.run(&k.gelu, tilesOf(y.Len, geluElements))
}

func (k *kernels[T]) GELUBackward(dx, dy, x device.Slice) {
	k.geluBackward = pairTask[T]{k.ops, k.ops.geluBackward, geluElements, k.tensor(dx), k.of("GELUBackward", "dy", dy, dx.Len), k.of("GELUBackward", "x", x, dx.Len)}
	k.pool.run(&k.geluBackward, tilesOf(dx.Len, geluElements))
}

type dropoutTask[T Float] struct {
	ops            *rowOps[T]
	y, residual, x operand[T]
	d              device.Dropout
	below          uint64 // a 32-bit word under this drops the element
	scale          T
}

// masking is a range of the elements of one sample. residual is empty where there is none.
type masking[T Float] struct {
	y, residual, x []T
}

// tile draws block e/4 of (Key, sample) for elements e = 4b..4b+3 of a sample.
func (t *dropoutTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.y.len(), tileElements)
	most := piece(hi-lo, &t.y, &t.residual, &t.x)
	s := bandsOf(w, t.ops, 3, most, &t.y, &t.residual, &t.x)
	for lo < hi {
		sample, e := t.d.Sample+uint64(lo/t.d.PerSample), lo%t.d.PerSample
		n := min(most, t.d.PerSample-e, hi-lo)
		m := masking[T]{y: t.y.room(&s, 0, lo, lo+n), x: t.x.read(&s, 1, lo, lo+n)}
		if !t.residual.none() {
			m.residual = t.residual.read(&s, 2, lo, lo+n)
		}
		done := t.sixtyFours(w, m, sample, e, n)
		t.few(m, sample, e+done, done)
		t.y.put(t.ops, m.y, lo)
		lo += n
	}
}

// few does the elements from j on, of which j is element e of the sample.
func (t *dropoutTask[T]) few(m masking[T], sample uint64, e, j int) {
	for end := len(m.y); j < end; {
		bits := random.Block(t.d.Key, sample, uint64(e/4))
		for k := min(4-e%4, end-j); k > 0; k-- {
			var v T
			if uint64(bits[e%4]) >= t.below {
				v = T(m.x[j] * t.scale)
			}
			if m.residual != nil {
				v += m.residual[j]
			}
			m.y[j] = v
			j++
			e++
		}
	}
}

// sixtyFours does as many times sixty-four elements as there are, where the device has a kernel for
// it, and returns how many elements are done. Its parameters are the keys of ten rounds, the number of
// the first block, the sample, the bound and the scale, in words of 32 bits.
func (t *dropoutTask[T]) sixtyFours(w *worker, m masking[T], sample uint64, e, n int) int {
	groups := n / 64
	if t.ops.dropout == nil || groups == 0 || e%4 != 0 || (e+n)/4 >= math.MaxUint32-16 || t.below > math.MaxUint32 {
		return 0
	}
	p := &w.params
	keys := random.RoundKeys(t.d.Key)
	copy(p[:], keys[:])
	p[20], p[21], p[22], p[23] = uint32(e/4), 0, uint32(sample), uint32(sample>>32)
	p[24], p[25] = uint32(t.below), math.Float32bits(float32(t.scale))
	if m.residual == nil {
		t.ops.dropout(&m.y[0], &m.x[0], &p[0], groups)
	} else {
		t.ops.dropoutAdd(&m.y[0], &m.x[0], &m.residual[0], &p[0], groups)
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
				k.Convert(y, x)
			}
			return
		}
		k.Add(y, residual, x)
		return
	}
	k.dropout = dropoutTask[T]{k.ops, k.tensor(y), k.ofOptional("Dropout", "residual", residual, y.Len), k.of("Dropout", "x", x, y.Len),
		d, uint64(math.Round(d.P * (1 << 32))), T(1 / (1 - d.P))}
	k.pool.run(&k.dropout, tilesOf(y.Len, tileElements))
}
