package cpu

import "github.com/troupe-train/troupe/device"

const normEpsilon = 1e-5

type normTask[T Float] struct {
	ops              *rowOps[T]
	y, x, gain, bias operand[T]
	mean, rstd       []T
	rows, width, per int
}

func (t *normTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.rows, t.per)
	s := bandsOf(w, t.ops, 4, t.width, &t.y, &t.x, &t.gain, &t.bias)
	gain, bias := first(t.gain.read(&s, 2, 0, t.width)), first(t.bias.read(&s, 3, 0, t.width))
	for r := lo; r < hi; r++ {
		x, y := t.x.read(&s, 0, r*t.width, (r+1)*t.width), t.y.room(&s, 1, r*t.width, (r+1)*t.width)
		mean := t.ops.sum(first(x), t.width) / T(t.width)
		rstd := 1 / sqrt(t.ops.squares(first(x), t.width, mean)/T(t.width)+normEpsilon)
		t.ops.normalize(first(y), first(x), gain, bias, t.width, mean, rstd)
		t.y.put(t.ops, y, r*t.width)
		t.mean[r], t.rstd[r] = mean, rstd
	}
}

func (k *kernels[T]) LayerNorm(y, mean, rstd, x, gain, bias device.Slice, rows, width int) {
	const name = "LayerNorm"
	n := rows * width
	k.norm = normTask[T]{k.ops, k.of(name, "y", y, n), k.of(name, "x", x, n), k.of(name, "gain", gain, width), k.of(name, "bias", bias, width),
		k.in(name, "mean", mean, rows), k.in(name, "rstd", rstd, rows), rows, width, rowsPerTile(width)}
	k.pool.run(&k.norm, tilesOf(rows, k.norm.per))
}

type normInputTask[T Float] struct {
	ops                       *rowOps[T]
	dx, residual, dy, x, gain operand[T]
	mean, rstd                []T
	rows, width, per          int
}

// tile: with h = (x-mean)*rstd and g = dy*gain, dx = rstd * (g - avg(g) - h*avg(g*h)).
func (t *normInputTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.rows, t.per)
	n := t.width
	s := bandsOf(w, t.ops, 5, n, &t.dx, &t.residual, &t.dy, &t.x, &t.gain)
	gain := first(t.gain.read(&s, 4, 0, n))
	for r := lo; r < hi; r++ {
		x, dy := first(t.x.read(&s, 0, r*n, (r+1)*n)), first(t.dy.read(&s, 1, r*n, (r+1)*n))
		out := t.dx.room(&s, 2, r*n, (r+1)*n)
		dx, mean, rstd := first(out), t.mean[r], t.rstd[r]
		sumG, sumGH := t.ops.normSums(dy, gain, x, n, mean, rstd)
		avgG, avgGH := sumG/T(n), sumGH/T(n)
		if t.residual.none() {
			t.ops.normInput(dx, dy, gain, x, n, mean, rstd, avgG, avgGH)
		} else {
			t.ops.normInputAdd(dx, dy, gain, x, first(t.residual.read(&s, 3, r*n, (r+1)*n)), n, mean, rstd, avgG, avgGH)
		}
		t.dx.put(t.ops, out, r*n)
	}
}

func (k *kernels[T]) LayerNormBackwardInput(dx, residual, dy, x, gain, mean, rstd device.Slice, rows, width int) {
	const name = "LayerNormBackwardInput"
	n := rows * width
	k.normInput = normInputTask[T]{k.ops, k.of(name, "dx", dx, n), k.ofOptional(name, "residual", residual, n), k.of(name, "dy", dy, n), k.of(name, "x", x, n),
		k.of(name, "gain", gain, width), k.in(name, "mean", mean, rows), k.in(name, "rstd", rstd, rows), rows, width, rowsPerTile(width)}
	k.pool.run(&k.normInput, tilesOf(rows, k.normInput.per))
}

type normWeightTask[T Float] struct {
	ops                      *rowOps[T]
	dgain, dbias, mean, rstd []T
	dy, x                    operand[T]
	rows, width              int
	per                      int // columns of a tile
}

func (t *normWeightTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.width, t.per)
	dgain, dbias := t.dgain[lo:hi], t.dbias[lo:hi]
	clear(dgain)
	clear(dbias)
	b := blockOf(w, t.ops, 2, t.rows, t.width, t.per, &t.dy, &t.x)
	for r := 0; r < t.rows; r += b.rows {
		end := min(r+b.rows, t.rows)
		dy, x := b.read(&t.dy, 0, r, end, lo, hi), b.read(&t.x, 1, r, end, lo, hi)
		t.ops.normWeight(first(dgain), first(dbias), dy, x, &t.mean[r], &t.rstd[r], hi-lo, end-r, b.stride)
	}
}

func (k *kernels[T]) LayerNormBackwardWeight(dgain, dbias, dy, x, mean, rstd device.Slice, rows, width int) {
	const name = "LayerNormBackwardWeight"
	n := rows * width
	k.normWeight = normWeightTask[T]{k.ops, k.in(name, "dgain", dgain, width), k.in(name, "dbias", dbias, width),
		k.in(name, "mean", mean, rows), k.in(name, "rstd", rstd, rows), k.of(name, "dy", dy, n), k.of(name, "x", x, n), rows, width, columnsOf(k.pool, width)}
	k.pool.run(&k.normWeight, tilesOf(width, k.normWeight.per))
}
