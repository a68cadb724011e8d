package cpu

import "github.com/troupe-train/troupe/device"

// RMS norm is layer norm with a mean of 0, a bias of 0 and no gradient through the mean; so the sums and the
// gradient of a row are those of layer norm with zeros in their places.

type rmsTask[T Float] struct {
	ops              *rowOps[T]
	y, x, gain       operand[T]
	rstd             []T
	rows, width, per int
}

func (t *rmsTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.rows, t.per)
	s := bandsOf(w, t.ops, 3, t.width, &t.y, &t.x, &t.gain)
	gain := first(t.gain.read(&s, 2, 0, t.width))
	for r := lo; r < hi; r++ {
		x, y := first(t.x.read(&s, 0, r*t.width, (r+1)*t.width)), t.y.room(&s, 1, r*t.width, (r+1)*t.width)
		rstd := 1 / sqrt(t.ops.squares(x, t.width, 0)/T(t.width)+normEpsilon)
		t.ops.scaleGain(first(y), x, gain, t.width, rstd)
		t.y.put(t.ops, y, r*t.width)
		t.rstd[r] = rstd
	}
}

func (k *kernels[T]) RMSNorm(y, rstd, x, gain device.Slice, rows, width int) {
	const name = "RMSNorm"
	n := rows * width
	k.rms = rmsTask[T]{k.ops, k.of(name, "y", y, n), k.of(name, "x", x, n), k.of(name, "gain", gain, width), k.in(name, "rstd", rstd, rows),
		rows, width, rowsPerTile(width)}
	k.pool.run(&k.rms, tilesOf(rows, k.rms.per))
}

type rmsInputTask[T Float] struct {
	ops                       *rowOps[T]
	dx, residual, dy, x, gain operand[T]
	rstd                      []T
	rows, width, per          int
}

// tile: with h = x*rstd and g = dy*gain, dx = rstd * (g - h*avg(g*h)).
func (t *rmsInputTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.rows, t.per)
	n := t.width
	s := bandsOf(w, t.ops, 5, n, &t.dx, &t.residual, &t.dy, &t.x, &t.gain)
	gain := first(t.gain.read(&s, 4, 0, n))
	for r := lo; r < hi; r++ {
		x, dy := first(t.x.read(&s, 0, r*n, (r+1)*n)), first(t.dy.read(&s, 1, r*n, (r+1)*n))
		out := t.dx.room(&s, 2, r*n, (r+1)*n)
		dx, rstd := first(out), t.rstd[r]
		_, sumGH := t.ops.normSums(dy, gain, x, n, 0, rstd)
		if t.residual.none() {
			t.ops.normInput(dx, dy, gain, x, n, 0, rstd, 0, sumGH/T(n))
		} else {
			t.ops.normInputAdd(dx, dy, gain, x, first(t.residual.read(&s, 3, r*n, (r+1)*n)), n, 0, rstd, 0, sumGH/T(n))
		}
		t.dx.put(t.ops, out, r*n)
	}
}

func (k *kernels[T]) RMSNormBackwardInput(dx, residual, dy, x, gain, rstd device.Slice, rows, width int) {
	const name = "RMSNormBackwardInput"
	n := rows * width
	k.rmsInput = rmsInputTask[T]{k.ops, k.of(name, "dx", dx, n), k.ofOptional(name, "residual", residual, n), k.of(name, "dy", dy, n),
		k.of(name, "x", x, n), k.of(name, "gain", gain, width), k.in(name, "rstd", rstd, rows), rows, width, rowsPerTile(width)}
	k.pool.run(&k.rmsInput, tilesOf(rows, k.rmsInput.per))
}

type rmsWeightTask[T Float] struct {
	ops         *rowOps[T]
	dgain, rstd []T
	dy, x       operand[T]
	rows, width int
	per         int // columns of a tile
}

func (t *rmsWeightTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.width, t.per)
	dgain := t.dgain[lo:hi]
	clear(dgain)
	b := blockOf(w, t.ops, 2, t.rows, t.width, t.per, &t.dy, &t.x)
	for r := 0; r < t.rows; r += b.rows {
		end := min(r+b.rows, t.rows)
		dy, x := b.read(&t.dy, 0, r, end, lo, hi), b.read(&t.x, 1, r, end, lo, hi)
		t.ops.rmsWeight(first(dgain), dy, x, &t.rstd[r], hi-lo, end-r, b.stride)
	}
}

func (k *kernels[T]) RMSNormBackwardWeight(dgain, dy, x, rstd device.Slice, rows, width int) {
	const name = "RMSNormBackwardWeight"
	n := rows * width
	k.rmsWeight = rmsWeightTask[T]{k.ops, k.in(name, "dgain", dgain, width), k.in(name, "rstd", rstd, rows),
		k.of(name, "dy", dy, n), k.of(name, "x", x, n), rows, width, columnsOf(k.pool, width)}
	k.pool.run(&k.rmsWeight, tilesOf(width, k.rmsWeight.per))
}
