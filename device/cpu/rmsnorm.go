package cpu

import "github.com/troupe-train/troupe/device"

// RMS norm is layer norm with a mean of 0, a bias of 0 and no gradient through the mean; so the sums and the
// gradient of a row are those of layer norm with zeros in their places.

type rmsTask[T Float] struct {
	ops              *rowOps[T]
	y, rstd, x, gain []T
	rows, width, per int
}

func (t *rmsTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.rows, t.per)
	for r := lo; r < hi; r++ {
		x := first(t.x[r*t.width : (r+1)*t.width])
		rstd := 1 / sqrt(t.ops.squares(x, t.width, 0)/T(t.width)+normEpsilon)
		t.ops.scaleGain(first(t.y[r*t.width:(r+1)*t.width]), x, first(t.gain), t.width, rstd)
		t.rstd[r] = rstd
	}
}

func (k *kernels[T]) RMSNorm(y, rstd, x, gain device.Slice, rows, width int) {
	const name = "RMSNorm"
	n := rows * width
	k.rms = rmsTask[T]{k.ops, k.in(name, "y", y, n), k.in(name, "rstd", rstd, rows), k.in(name, "x", x, n), k.in(name, "gain", gain, width),
		rows, width, rowsPerTile(width)}
	k.pool.run(&k.rms, tilesOf(rows, k.rms.per))
}

type rmsInputTask[T Float] struct {
	ops                             *rowOps[T]
	dx, residual, dy, x, gain, rstd []T
	rows, width, per                int
}

// tile: with h = x*rstd and g = dy*gain, dx = rstd * (g - h*avg(g*h)).
func (t *rmsInputTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.rows, t.per)
	n := t.width
	for r := lo; r < hi; r++ {
		x, dy, dx := first(t.x[r*n:(r+1)*n]), first(t.dy[r*n:(r+1)*n]), first(t.dx[r*n:(r+1)*n])
		gain, rstd := first(t.gain), t.rstd[r]
		_, sumGH := t.ops.normSums(dy, gain, x, n, 0, rstd)
		if t.residual == nil {
			t.ops.normInput(dx, dy, gain, x, n, 0, rstd, 0, sumGH/T(n))
		} else {
			t.ops.normInputAdd(dx, dy, gain, x, first(t.residual[r*n:(r+1)*n]), n, 0, rstd, 0, sumGH/T(n))
		}
	}
}

func (k *kernels[T]) RMSNormBackwardInput(dx, residual, dy, x, gain, rstd device.Slice, rows, width int) {
	const name = "RMSNormBackwardInput"
	n := rows * width
	k.rmsInput = rmsInputTask[T]{k.ops, k.in(name, "dx", dx, n), k.optional(name, "residual", residual, n), k.in(name, "dy", dy, n),
		k.in(name, "x", x, n), k.in(name, "gain", gain, width), k.in(name, "rstd", rstd, rows), rows, width, rowsPerTile(width)}
	k.pool.run(&k.rmsInput, tilesOf(rows, k.rmsInput.per))
}

type rmsWeightTask[T Float] struct {
	ops                *rowOps[T]
	dgain, dy, x, rstd []T
	rows, width        int
}

func (t *rmsWeightTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.width, columnsPerTile)
	dgain := t.dgain[lo:hi]
	clear(dgain)
	if t.rows > 0 {
		t.ops.rmsWeight(first(dgain), first(t.dy[lo:]), first(t.x[lo:]), first(t.rstd), hi-lo, t.rows, bytesOf[T](t.width))
	}
}

func (k *kernels[T]) RMSNormBackwardWeight(dgain, dy, x, rstd device.Slice, rows, width int) {
	const name = "RMSNormBackwardWeight"
	n := rows * width
	k.rmsWeight = rmsWeightTask[T]{k.ops, k.in(name, "dgain", dgain, width), k.in(name, "dy", dy, n), k.in(name, "x", x, n),
		k.in(name, "rstd", rstd, rows), rows, width}
	k.pool.run(&k.rmsWeight, tilesOf(width, columnsPerTile))
}
