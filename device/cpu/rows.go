package cpu

import (
	"math"
	"unsafe"
)

// rowOps are the loops inside the kernels: one row, or one piece of a vector, or the rows of a
// block of columns. The fields take pointers, as assembly does. n counts elements and may be 0; strides are
// bytes. Outputs may be inputs, except where rows are summed.
type rowOps[T Float] struct {
	add          func(dst, a, b *T, n int)
	scale        func(x *T, n int, factor T)
	gelu         func(y, x *T, n int)
	geluBackward func(dx, dy, x *T, n int)

	swiglu         func(y, gate, x *T, n int)
	swigluBackward func(dgate, dx, dy, gate, x *T, n int)
	turn           func(a, b, x, y, cos, sin *T, n int)

	sum          func(x *T, n int) T
	dot          func(a, b *T, n int) T
	squares      func(x *T, n int, mean T) T
	normalize    func(y, x, gain, bias *T, n int, mean, rstd T)
	normSums     func(dy, gain, x *T, n int, mean, rstd T) (sumG, sumGH T)
	normInput    func(dx, dy, gain, x *T, n int, mean, rstd, avgG, avgGH T)
	normInputAdd func(dx, dy, gain, x, residual *T, n int, mean, rstd, avgG, avgGH T)
	normWeight   func(dgain, dbias, dy, x, mean, rstd *T, n, rows, stride int)
	scaleGain    func(y, x, gain *T, n int, rstd T)
	rmsWeight    func(dgain, dy, x, rstd *T, n, rows, stride int)
	sumRows      func(dst, src *T, n, rows, stride int)

	largest         func(x *T, n int) T
	expSum          func(y, x *T, n int, factor, shift T) T
	expTotal        func(x *T, n int, factor, shift T) T
	expScale        func(y, x *T, n int, shift, factor T)
	softmaxBackward func(p, ds *T, n int, factor, lse, delta T)

	// dropout and dropoutAdd do n times 64 elements from block to block; nil where there are none. See dropoutTask for params.
	dropout    func(y, x *T, params *uint32, n int)
	dropoutAdd func(y, x, residual *T, params *uint32, n int)

	// widen and narrow convert n times 16 elements; see read and write.
	widen  func(dst *T, src *BFloat16, n int)
	narrow func(dst *BFloat16, src *T, n int)

	adamw, adamwPast func(next, m2, v2, w, m, v, grad *T, n int, gradScale, beta1, rest1, beta2, rest2, step, rsqrt, epsilon, decay T)
	sgd              func(next, m2, w, m, grad *T, n int, gradScale, momentum, lr, decay T)
}

// first is the pointer to the elements of s; it may be passed on where s is empty.
func first[T any](s []T) *T { return unsafe.SliceData(s) }

// portableRows are the row kernels in Go. Sums run in ascending order. Where a product is added to
// something in a kernel whose bits are equal at every level, the conversion T(a*b) keeps the compiler of
// other architectures from fusing the two.
func portableRows[T Float]() *rowOps[T] {
	return &rowOps[T]{
		add:             addRow[T],
		scale:           scaleRow[T],
		gelu:            geluRow[T],
		geluBackward:    geluBackwardRow[T],
		swiglu:          swigluRow[T],
		swigluBackward:  swigluBackwardRow[T],
		turn:            turnRow[T],
		sum:             sumRow[T],
		dot:             dotRow[T],
		squares:         squaresRow[T],
		normalize:       normalizeRow[T],
		normSums:        normSumsRow[T],
		normInput:       normInputRow[T],
		normInputAdd:    normInputAddRow[T],
		normWeight:      normWeightRows[T],
		scaleGain:       scaleGainRow[T],
		rmsWeight:       rmsWeightRows[T],
		sumRows:         sumRowsRows[T],
		largest:         largestRow[T],
		expSum:          expSumRow[T],
		expTotal:        expTotalRow[T],
		expScale:        expScaleRow[T],
		softmaxBackward: softmaxBackwardRow[T],
		widen:           widenBlocks[T],
		narrow:          narrowBlocks[T],
		adamw:           adamwRow[T],
		adamwPast:       adamwRow[T],
		sgd:             sgdRow[T],
	}
}

func exp[T Float](x T) T  { return T(math.Exp(float64(x))) }
func sqrt[T Float](x T) T { return T(math.Sqrt(float64(x))) }

func addRow[T Float](dst, a, b *T, n int) {
	d, x, y := unsafe.Slice(dst, n), unsafe.Slice(a, n), unsafe.Slice(b, n)
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

func scaleRow[T Float](x *T, n int, factor T) {
	v := unsafe.Slice(x, n)
	for i := range v {
		v[i] *= factor
	}
}

// gelu(x) = 0.5 x (1 + tanh u) = x / (1 + exp(-2u)) with u = sqrt(2/pi) (x + 0.044715 x^3).
const (
	geluScale = 0.7978845608028654 // sqrt(2/pi)
	geluCubic = 0.044715
)

func geluRow[T Float](y, x *T, n int) {
	out, in := unsafe.Slice(y, n), unsafe.Slice(x, n)
	for i, v := range in {
		u := geluScale * v * (1 + geluCubic*v*v)
		out[i] = v / (1 + exp(-2*u))
	}
}

// geluBackwardRow: the slope is s + x s (1-s) 2 du/dx with s = 1 / (1 + exp(-2u)).
func geluBackwardRow[T Float](dx, dy, x *T, n int) {
	out, g, in := unsafe.Slice(dx, n), unsafe.Slice(dy, n), unsafe.Slice(x, n)
	for i, v := range in {
		u := geluScale * v * (1 + geluCubic*v*v)
		s := 1 / (1 + exp(-2*u))
		out[i] = g[i] * (s + v*s*(1-s)*(2*geluScale)*(1+3*geluCubic*v*v))
	}
}

func sumRow[T Float](x *T, n int) (total T) {
	for _, v := range unsafe.Slice(x, n) {
		total += v
	}
	return total
}

func dotRow[T Float](a, b *T, n int) (total T) {
	y := unsafe.Slice(b, n)
	for i, v := range unsafe.Slice(a, n) {
		total += v * y[i]
	}
	return total
}

func squaresRow[T Float](x *T, n int, mean T) (total T) {
	for _, v := range unsafe.Slice(x, n) {
		d := v - mean
		total += d * d
	}
	return total
}

func normalizeRow[T Float](y, x, gain, bias *T, n int, mean, rstd T) {
	out, g, b := unsafe.Slice(y, n), unsafe.Slice(gain, n), unsafe.Slice(bias, n)
	for i, v := range unsafe.Slice(x, n) {
		out[i] = (v-mean)*rstd*g[i] + b[i]
	}
}

func normSumsRow[T Float](dy, gain, x *T, n int, mean, rstd T) (sumG, sumGH T) {
	d, w := unsafe.Slice(dy, n), unsafe.Slice(gain, n)
	for i, v := range unsafe.Slice(x, n) {
		g := d[i] * w[i]
		sumG += g
		sumGH += g * ((v - mean) * rstd)
	}
	return sumG, sumGH
}

func normInputRow[T Float](dx, dy, gain, x *T, n int, mean, rstd, avgG, avgGH T) {
	out, d, w := unsafe.Slice(dx, n), unsafe.Slice(dy, n), unsafe.Slice(gain, n)
	for i, v := range unsafe.Slice(x, n) {
		out[i] = rstd * (d[i]*w[i] - avgG - (v-mean)*rstd*avgGH)
	}
}

func normInputAddRow[T Float](dx, dy, gain, x, residual *T, n int, mean, rstd, avgG, avgGH T) {
	out, d, w, r := unsafe.Slice(dx, n), unsafe.Slice(dy, n), unsafe.Slice(gain, n), unsafe.Slice(residual, n)
	for i, v := range unsafe.Slice(x, n) {
		out[i] = r[i] + rstd*(d[i]*w[i]-avgG-(v-mean)*rstd*avgGH)
	}
}

// row is row r of n elements, stride bytes from row to row.
func row[T Float](p *T, r, stride, n int) []T {
	return unsafe.Slice((*T)(unsafe.Add(unsafe.Pointer(p), r*stride)), n)
}

func normWeightRows[T Float](dgain, dbias, dy, x, mean, rstd *T, n, rows, stride int) {
	dg, db := unsafe.Slice(dgain, n), unsafe.Slice(dbias, n)
	means, rstds := unsafe.Slice(mean, rows), unsafe.Slice(rstd, rows)
	for r := range rows {
		d, in := row(dy, r, stride, n), row(x, r, stride, n)
		for i, v := range in {
			dg[i] += T((v - means[r]) * rstds[r] * d[i])
			db[i] += d[i]
		}
	}
}

func sumRowsRows[T Float](dst, src *T, n, rows, stride int) {
	d := unsafe.Slice(dst, n)
	for r := range rows {
		for i, v := range row(src, r, stride, n) {
			d[i] += v
		}
	}
}

// largestRow is the maximum of the elements that are numbers.
func largestRow[T Float](x *T, n int) T {
	top := T(math.Inf(-1))
	for _, v := range unsafe.Slice(x, n) {
		if v > top {
			top = v
		}
	}
	return top
}

func expSumRow[T Float](y, x *T, n int, factor, shift T) (total T) {
	out := unsafe.Slice(y, n)
	for i, v := range unsafe.Slice(x, n) {
		e := exp(v*factor - shift)
		out[i] = e
		total += e
	}
	return total
}

func expTotalRow[T Float](x *T, n int, factor, shift T) (total T) {
	for _, v := range unsafe.Slice(x, n) {
		total += exp(v*factor - shift)
	}
	return total
}

func expScaleRow[T Float](y, x *T, n int, shift, factor T) {
	out := unsafe.Slice(y, n)
	for i, v := range unsafe.Slice(x, n) {
		out[i] = exp(v-shift) * factor
	}
}

func softmaxBackwardRow[T Float](p, ds *T, n int, factor, lse, delta T) {
	ps, d := unsafe.Slice(p, n), unsafe.Slice(ds, n)
	for i, v := range ps {
		e := exp(v*factor - lse)
		ps[i] = e
		d[i] = e * (d[i] - delta) * factor
	}
}

func adamwRow[T Float](next, m2, v2, w, m, v, grad *T, n int, gradScale, beta1, rest1, beta2, rest2, step, rsqrt, epsilon, decay T) {
	outW, outM, outV := unsafe.Slice(next, n), unsafe.Slice(m2, n), unsafe.Slice(v2, n)
	ws, ms, vs := unsafe.Slice(w, n), unsafe.Slice(m, n), unsafe.Slice(v, n)
	for i, g := range unsafe.Slice(grad, n) {
		g *= gradScale
		mi := T(beta1*ms[i]) + T(rest1*g)
		vi := T(beta2*vs[i]) + T(rest2*T(g*g))
		outW[i] = ws[i] - (step*mi/(T(sqrt(vi)*rsqrt)+epsilon) + T(decay*ws[i]))
		outM[i], outV[i] = mi, vi
	}
}

func sgdRow[T Float](next, m2, w, m, grad *T, n int, gradScale, momentum, lr, decay T) {
	outW, outM, ws, ms := unsafe.Slice(next, n), unsafe.Slice(m2, n), unsafe.Slice(w, n), unsafe.Slice(m, n)
	for i, g := range unsafe.Slice(grad, n) {
		mi := T(momentum*ms[i]) + T(gradScale*g)
		outW[i] = ws[i] - T(lr*(mi+T(decay*ws[i])))
		outM[i] = mi
	}
}
