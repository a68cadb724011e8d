package cpu

import (
	"math"

	"github.com/troupe-train/troupe/device"
)

const normEpsilon = 1e-5

func sqrt[T Float](x T) T { return T(math.Sqrt(float64(x))) }

type normTask[T Float] struct {
	y, mean, rstd, x, gain, bias []T
	rows, width, per             int
}

func (t *normTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.rows, t.per)
	for r := lo; r < hi; r++ {
		x := t.x[r*t.width : (r+1)*t.width]
		y := t.y[r*t.width : (r+1)*t.width][:len(x)]
		gain, bias := t.gain[:len(x)], t.bias[:len(x)]
		var sum, squares T
		for _, v := range x {
			sum += v
		}
		mean := sum / T(t.width)
		for _, v := range x {
			d := v - mean
			squares += d * d
		}
		rstd := 1 / sqrt(squares/T(t.width)+normEpsilon)
		for j, v := range x {
			y[j] = (v-mean)*rstd*gain[j] + bias[j]
		}
		t.mean[r], t.rstd[r] = mean, rstd
	}
}

func (k *kernels[T]) LayerNorm(y, mean, rstd, x, gain, bias device.Slice, rows, width int) {
	const name = "LayerNorm"
	n := rows * width
	k.norm = normTask[T]{k.in(name, "y", y, n), k.in(name, "mean", mean, rows), k.in(name, "rstd", rstd, rows), k.in(name, "x", x, n),
		k.in(name, "gain", gain, width), k.in(name, "bias", bias, width), rows, width, rowsPerTile(width)}
	k.pool.run(&k.norm, tilesOf(rows, k.norm.per))
}

type normInputTask[T Float] struct {
	dx, residual, dy, x, gain, mean, rstd []T
	rows, width, per                      int
}

// tile: with h = (x-mean)*rstd and g = dy*gain, dx = rstd * (g - avg(g) - h*avg(g*h)).
func (t *normInputTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.rows, t.per)
	for r := lo; r < hi; r++ {
		x := t.x[r*t.width : (r+1)*t.width]
		dy, dx := t.dy[r*t.width : (r+1)*t.width][:len(x)], t.dx[r*t.width : (r+1)*t.width][:len(x)]
		gain := t.gain[:len(x)]
		mean, rstd := t.mean[r], t.rstd[r]
		var sumG, sumGH T
		for j, v := range x {
			g := dy[j] * gain[j]
			sumG += g
			sumGH += g * ((v - mean) * rstd)
		}
		avgG, avgGH := sumG/T(t.width), sumGH/T(t.width)
		if t.residual == nil {
			for j, v := range x {
				dx[j] = rstd * (dy[j]*gain[j] - avgG - (v-mean)*rstd*avgGH)
			}
			continue
		}
		residual := t.residual[r*t.width : (r+1)*t.width][:len(x)]
		for j, v := range x {
			dx[j] = residual[j] + rstd*(dy[j]*gain[j]-avgG-(v-mean)*rstd*avgGH)
		}
	}
}

func (k *kernels[T]) LayerNormBackwardInput(dx, residual, dy, x, gain, mean, rstd device.Slice, rows, width int) {
	const name = "LayerNormBackwardInput"
	n := rows * width
	k.normInput = normInputTask[T]{k.in(name, "dx", dx, n), k.optional(name, "residual", residual, n), k.in(name, "dy", dy, n), k.in(name, "x", x, n),
		k.in(name, "gain", gain, width), k.in(name, "mean", mean, rows), k.in(name, "rstd", rstd, rows), rows, width, rowsPerTile(width)}
	k.pool.run(&k.normInput, tilesOf(rows, k.normInput.per))
}

// columnsPerTile cuts sums over rows into tiles of columns: a sum stays inside a tile, and a tile
// reads whole cache lines.
const columnsPerTile = 64

type normWeightTask[T Float] struct {
	dgain, dbias, dy, x, mean, rstd []T
	rows, width                     int
}

func (t *normWeightTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.width, columnsPerTile)
	dgain := t.dgain[lo:hi]
	dbias := t.dbias[lo:hi][:len(dgain)]
	clear(dgain)
	clear(dbias)
	for r := range t.rows {
		x, dy := t.x[r*t.width+lo : r*t.width+hi][:len(dgain)], t.dy[r*t.width+lo : r*t.width+hi][:len(dgain)]
		mean, rstd := t.mean[r], t.rstd[r]
		for j := range dgain {
			dgain[j] += dy[j] * ((x[j] - mean) * rstd)
			dbias[j] += dy[j]
		}
	}
}

func (k *kernels[T]) LayerNormBackwardWeight(dgain, dbias, dy, x, mean, rstd device.Slice, rows, width int) {
	const name = "LayerNormBackwardWeight"
	n := rows * width
	k.normWeight = normWeightTask[T]{k.in(name, "dgain", dgain, width), k.in(name, "dbias", dbias, width), k.in(name, "dy", dy, n),
		k.in(name, "x", x, n), k.in(name, "mean", mean, rows), k.in(name, "rstd", rstd, rows), rows, width}
	k.pool.run(&k.normWeight, tilesOf(width, columnsPerTile))
}
