package cpu

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
)

type sumRowsTask[T Float] struct {
	ops        *rowOps[T]
	dst        []T
	src        operand[T]
	rows, cols int
	per        int // columns of a tile
}

func (t *sumRowsTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.cols, t.per)
	dst := t.dst[lo:hi]
	clear(dst)
	b := blockOf(w, t.ops, 1, t.rows, t.cols, t.per, &t.src)
	for r := 0; r < t.rows; r += b.rows {
		end := min(r+b.rows, t.rows)
		t.ops.sumRows(first(dst), b.read(&t.src, 0, r, end, lo, hi), hi-lo, end-r, b.stride)
	}
}

func (k *kernels[T]) SumRows(dst, src device.Slice, rows, cols int) {
	k.sumRows = sumRowsTask[T]{k.ops, k.in("SumRows", "dst", dst, cols), k.of("SumRows", "src", src, rows*cols), rows, cols, columnsOf(k.pool, cols)}
	k.pool.run(&k.sumRows, tilesOf(cols, k.sumRows.per))
}

func (k *kernels[T]) Sum(dst, src device.Slice) {
	d := float64s("Sum", "dst", dst, 1)
	var sum float64
	if src.Type == device.F64 {
		for _, v := range Float64s(src) {
			sum += v
		}
	} else {
		for _, v := range view[T](src, k.t) {
			sum += float64(v)
		}
	}
	d[0] = sum
}

// squaresAtOnce is the blocks of SumSquares in a tile. Their sums, each in order, are taken side by
// side: one alone would wait for every addition.
const squaresAtOnce = 4

type squaresTask[T Float] struct {
	dst   []float64
	src   []T
	block int
}

func (t *squaresTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.dst), squaresAtOnce)
	n := t.block
	if at := lo * n; hi == lo+squaresAtOnce && hi*n <= len(t.src) {
		a, b, c, d := t.src[at:at+n], t.src[at+n:at+2*n], t.src[at+2*n:at+3*n], t.src[at+3*n:at+4*n]
		var s0, s1, s2, s3 float64
		for j := range a {
			s0 += float64(float64(a[j]) * float64(a[j]))
			s1 += float64(float64(b[j]) * float64(b[j]))
			s2 += float64(float64(c[j]) * float64(c[j]))
			s3 += float64(float64(d[j]) * float64(d[j]))
		}
		t.dst[lo], t.dst[lo+1], t.dst[lo+2], t.dst[lo+3] = s0, s1, s2, s3
		return
	}
	for ; lo < hi; lo++ {
		var sum float64
		for _, v := range t.src[lo*n : min((lo+1)*n, len(t.src))] {
			sum += float64(float64(v) * float64(v))
		}
		t.dst[lo] = sum
	}
}

func (k *kernels[T]) SumSquares(dst, src device.Slice, block int) {
	if block < 1 {
		panic(fmt.Sprintf("cpu: SumSquares: blocks of %d elements", block))
	}
	n := tilesOf(src.Len, block)
	k.squares = squaresTask[T]{float64s("SumSquares", "dst", dst, n), view[T](src, k.t), block}
	k.pool.run(&k.squares, tilesOf(n, squaresAtOnce))
}
