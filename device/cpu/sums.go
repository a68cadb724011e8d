package cpu

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
)

type sumRowsTask[T Float] struct {
	dst, src   []T
	rows, cols int
}

func (t *sumRowsTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.cols, columnsPerTile)
	dst := t.dst[lo:hi]
	clear(dst)
	for r := range t.rows {
		src := t.src[r*t.cols+lo : r*t.cols+hi][:len(dst)]
		for j := range dst {
			dst[j] += src[j]
		}
	}
}

func (k *kernels[T]) SumRows(dst, src device.Slice, rows, cols int) {
	k.sumRows = sumRowsTask[T]{k.in("SumRows", "dst", dst, cols), k.in("SumRows", "src", src, rows*cols), rows, cols}
	k.pool.run(&k.sumRows, tilesOf(cols, columnsPerTile))
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

type squaresTask[T Float] struct {
	dst   []float64
	src   []T
	block int
}

func (t *squaresTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.src), t.block)
	var sum float64
	for _, v := range t.src[lo:hi] {
		sum += float64(v) * float64(v)
	}
	t.dst[i] = sum
}

func (k *kernels[T]) SumSquares(dst, src device.Slice, block int) {
	if block < 1 {
		panic(fmt.Sprintf("cpu: SumSquares: blocks of %d elements", block))
	}
	n := tilesOf(src.Len, block)
	k.squares = squaresTask[T]{float64s("SumSquares", "dst", dst, n), view[T](src, k.t), block}
	k.pool.run(&k.squares, n)
}
