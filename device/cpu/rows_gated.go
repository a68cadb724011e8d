package cpu

import "unsafe"

// The row kernels of models with RMS norm, gated hidden layers and turned queries and keys.

func scaleGainRow[T Float](y, x, gain *T, n int, rstd T) {
	out, g := unsafe.Slice(y, n), unsafe.Slice(gain, n)
	for i, v := range unsafe.Slice(x, n) {
		out[i] = v * rstd * g[i]
	}
}

func rmsWeightRows[T Float](dgain, dy, x, rstd *T, n, rows, stride int) {
	dg, rstds := unsafe.Slice(dgain, n), unsafe.Slice(rstd, rows)
	for r := range rows {
		d := row(dy, r, stride, n)
		for i, v := range row(x, r, stride, n) {
			dg[i] += T(v * rstds[r] * d[i])
		}
	}
}

func swigluRow[T Float](y, gate, x *T, n int) {
	out, up := unsafe.Slice(y, n), unsafe.Slice(x, n)
	for i, v := range unsafe.Slice(gate, n) {
		out[i] = v * (1 / (1 + exp(-v))) * up[i]
	}
}

// swigluBackwardRow: the slope of silu is s + v s (1-s) with s = 1 / (1 + exp(-v)).
func swigluBackwardRow[T Float](dgate, dx, dy, gate, x *T, n int) {
	dg, du, d, up := unsafe.Slice(dgate, n), unsafe.Slice(dx, n), unsafe.Slice(dy, n), unsafe.Slice(x, n)
	for i, v := range unsafe.Slice(gate, n) {
		s := 1 / (1 + exp(-v))
		silu, u := v*s, up[i]
		dg[i], du[i] = (s+silu-silu*s)*u*d[i], silu*d[i]
	}
}

// turnRow turns the points (x, y) to (a, b), which may be the same memory.
func turnRow[T Float](a, b, x, y, cos, sin *T, n int) {
	outX, outY, inY := unsafe.Slice(a, n), unsafe.Slice(b, n), unsafe.Slice(y, n)
	c, s := unsafe.Slice(cos, n), unsafe.Slice(sin, n)
	for i, v := range unsafe.Slice(x, n) {
		w := inY[i]
		outX[i], outY[i] = T(v*c[i])-T(w*s[i]), T(w*c[i])+T(v*s[i])
	}
}
