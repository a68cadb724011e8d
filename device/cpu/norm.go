package cpu

import "github.com/troupe-train/troupe/device"

const normEpsilon = 1e-5

type normTask[T Float] struct {
	ops                          *rowOps[T]
	y, mean, rstd, x, gain, bias []T
	rows, width, per             int
}

func (t *normTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.rows, t.per)
	for r := lo; r < hi; r++ {
		x, y := t.x[r*t.width:(r+1)*t.width], t.y[r*t.width:(r+1)*t.width]
		mean := t.ops.sum(first(x), t.width) / T(t.width)
		rstd := 1 / sqrt(t.ops.squares(first(x), t.width, mean)/T(t.width)+normEpsilon)
		t.ops.normalize(first(y), first(x), first(t.gain), first(t.bias), t.width, mean, rstd)
		t.mean[r], t.rstd[r] = mean, rstd
	}
}

func (k *kernels[T]) LayerNorm(y, mean, rstd, x, gain, bias device.Slice, rows, width int) {
	const name = "LayerNorm"
	n := rows * width
	k.norm = normTask[T]{k.ops, k.in(name, "y", y, n), k.in(name, "mean", mean, rows), k.in(name, "rstd", rstd, rows), k.in(name, "x", x, n),
		k.in(name, "gain", gain, width), k.in(name, "bias", bias, width), rows, width, rowsPerTile(width)}
	k.pool.run(&k.norm, tilesOf(rows, k.norm.per))
}

type normInputTask[T Float] struct {
	ops                                   *rowOps[T]
	dx, residual, dy, x, gain, mean, rstd []T
	rows, width, per                      int
}

// tile: with h = (x-mean)*rstd and g = dy*gain, dx = rstd * (g - avg(g) - h*avg(g*h)).
func (t *normInputTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.rows, t.per)
	n := t.width
	for r := lo; r < hi; r++ {
		x, dy, dx := first(t.x[r*n:(r+1)*n]), first(t.dy[r*n:(r+1)*n]), first(t.dx[r*n:(r+1)*n])
		gain, mean, rstd := first(t.gain), t.mean[r], t.rstd[r]
		sumG, sumGH := t.ops.normSums(dy, gain, x, n, mean, rstd)
		avgG, avgGH := sumG/T(n), sumGH/T(n)
		if t.residual == nil {
			t.ops.normInput(dx, dy, gain, x, n, mean, rstd, avgG, avgGH)
		} else {
			t.ops.normInputAdd(dx, dy, gain, x, first(t.residual[r*n:(r+1)*n]), n, mean, rstd, avgG, avgGH)
		}
	}
}

func (k *kernels[T]) LayerNormBackwardInput(dx, residual, dy, x, gain, mean, rstd device.Slice, rows, width int) {
	const name = "LayerNormBackwardInput"
	n := rows * width
	k.normInput = normInputTask[T]{k.ops, k.in(name, "dx", dx, n), k.optional(name, "residual", residual, n), k.in(name, "dy", dy, n), k.in(name, "x", x, n),
		k.in(name, "gain", gain, width), k.in(name, "mean", mean, rows), k.in(name, "rstd", rstd, rows), rows, width, rowsPerTile(width)}
	k.pool.run(&k.normInput, tilesOf(rows, k.normInput.per))
}

// columnsPerTile cuts sums over rows into tiles of columns: a sum stays inside a tile, and a tile
// reads whole cache lines.
const columnsPerTile = 64

type normWeightTask[T Float] struct {
	ops                             *rowOps[T]
	dgain, dbias, dy, x, mean, rstd []T
	rows, width                     int
}

func (t *normWeightTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.width, columnsPerTile)
	dgain, dbias := t.dgain[lo:hi], t.dbias[lo:hi]
	clear(dgain)
	clear(dbias)
	if t.rows > 0 {
		t.ops.normWeight(first(dgain), first(dbias), first(t.dy[lo:]), first(t.x[lo:]), first(t.mean), first(t.rstd),
			hi-lo, t.rows, bytesOf[T](t.width))
	}
}

func (k *kernels[T]) LayerNormBackwardWeight(dgain, dbias, dy, x, mean, rstd device.Slice, rows, width int) {
	const name = "LayerNormBackwardWeight"
	n := rows * width
	k.normWeight = normWeightTask[T]{k.ops, k.in(name, "dgain", dgain, width), k.in(name, "dbias", dbias, width), k.in(name, "dy", dy, n),
		k.in(name, "x", x, n), k.in(name, "mean", mean, rows), k.in(name, "rstd", rstd, rows), rows, width}
	k.pool.run(&k.normWeight, tilesOf(width, columnsPerTile))
}
