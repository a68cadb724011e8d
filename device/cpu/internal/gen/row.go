package main

// rows writes the kernels that work on one row (or one piece of a vector) at a time.
func (g *generator) rows(l level) {
	x, y, a, b, dst := pointer("x"), pointer("y"), pointer("a"), pointer("b"), pointer("dst")
	dx, dy, gain, bias := pointer("dx"), pointer("dy"), pointer("gain"), pointer("bias")
	n := pointer("n")

	f := g.function(l, "add", "is dst = a + b.", nil, dst, a, b, n)
	f.loop(func() {
		u, v := f.vec(), f.vec()
		f.load(u, "a")
		f.load(v, "b")
		f.add(u, u, v)
		f.store("dst", u)
		f.release(u, v)
	})
	f.end()

	f = g.function(l, "scale", "is x *= factor.", nil, x, n, float("factor"))
	factor := f.broadcast("factor")
	f.loop(func() {
		u := f.vec()
		f.load(u, "x")
		f.mul(u, u, factor)
		f.store("x", u)
		f.release(u)
	})
	f.end()

	f = g.function(l, "gelu", "is y = gelu(x).", nil, y, x, n)
	f.loop(func() {
		v, e := f.vec(), f.vec()
		f.load(v, "x")
		f.sigmoid(e, v)
		f.mul(e, e, v)
		f.store("y", e)
		f.release(v, e)
	})
	f.end()

	f = g.function(l, "geluBackward", "is dx = dy gelu'(x).", nil, dx, dy, x, n)
	f.loop(func() {
		v, s := f.vec(), f.vec()
		f.load(v, "x")
		f.sigmoid(s, v)
		// s + s (1-s) x 2 du/dx with 2 du/dx = 2 sqrt(2/pi) (1 + 3 0.044715 x^2)
		t, u := f.vec(), f.vec()
		f.mul(t, v, v)
		f.move(u, f.number("geluSlope2", 2*geluScale*3*geluCubic))
		f.horner(t, u, f.number("geluSlope0", 2*geluScale))
		f.mul(t, t, v)
		f.move(u, f.number("one", 1))
		f.sub(u, u, s)
		f.mul(u, u, s)
		f.fma(s, u, t)
		f.load(u, "dy")
		f.mul(s, s, u)
		f.store("dx", s)
		f.release(v, s, t, u)
	})
	f.end()

	g.gated(l)

	f = g.function(l, "scaleGain", "is y = x rstd gain.", nil, y, x, gain, n, float("rstd"))
	rstd := f.broadcast("rstd")
	f.loop(func() {
		u, v := f.vec(), f.vec()
		f.load(u, "x")
		f.mul(u, u, rstd)
		f.load(v, "gain")
		f.mul(u, u, v)
		f.store("y", u)
		f.release(u, v)
	})
	f.end()

	f = g.function(l, "sum", "adds up x.", []string{"total"}, x, n)
	acc := f.vec()
	f.zero(acc)
	f.loop(func() {
		u := f.vec()
		f.load(u, "x")
		f.add(acc, acc, u)
		f.release(u)
	})
	f.reduce("VADDPS", acc, "total")
	f.end()

	f = g.function(l, "dot", "adds up a b.", []string{"total"}, a, b, n)
	acc = f.vec()
	f.zero(acc)
	f.loop(func() {
		u, v := f.vec(), f.vec()
		f.load(u, "a")
		f.load(v, "b")
		f.fma(acc, u, v)
		f.release(u, v)
	})
	f.reduce("VADDPS", acc, "total")
	f.end()

	f = g.function(l, "squares", "adds up (x - mean)^2.", []string{"total"}, x, n, float("mean"))
	acc, mean := f.vec(), f.broadcast("mean")
	f.zero(acc)
	f.loop(func() {
		u := f.vec()
		f.load(u, "x")
		f.sub(u, u, mean)
		f.clean(u)
		f.fma(acc, u, u)
		f.release(u)
	})
	f.reduce("VADDPS", acc, "total")
	f.end()

	f = g.function(l, "normalize", "is y = (x - mean) rstd gain + bias.", nil, y, x, gain, bias, n, float("mean"), float("rstd"))
	mean = f.broadcast("mean")
	rstd = f.broadcast("rstd")
	f.loop(func() {
		u, v, w := f.vec(), f.vec(), f.vec()
		f.load(u, "x")
		f.sub(u, u, mean)
		f.mul(u, u, rstd)
		f.load(v, "gain")
		f.load(w, "bias")
		f.horner(u, v, w)
		f.store("y", u)
		f.release(u, v, w)
	})
	f.end()

	f = g.function(l, "normSums", "adds up g = dy gain, and g (x - mean) rstd.", []string{"sumG", "sumGH"},
		dy, gain, x, n, float("mean"), float("rstd"))
	mean, rstd = f.broadcast("mean"), f.broadcast("rstd")
	sumG, sumGH := f.vec(), f.vec()
	f.zero(sumG)
	f.zero(sumGH)
	f.loop(func() {
		u, v := f.vec(), f.vec()
		f.load(u, "dy")
		f.load(v, "gain")
		f.mul(u, u, v)
		f.add(sumG, sumG, u)
		f.load(v, "x")
		f.sub(v, v, mean)
		f.mul(v, v, rstd)
		f.fma(sumGH, u, v)
		f.release(u, v)
	})
	f.reduce("VADDPS", sumG, "sumG")
	f.reduce("VADDPS", sumGH, "sumGH")
	f.end()

	normInput := func(residual bool) {
		name, doc, args := "normInput", "is dx = rstd (dy gain - avgG - (x - mean) rstd avgGH).", []argument{dx, dy, gain, x}
		if residual {
			name, doc, args = "normInputAdd", "is normInput plus residual.", append(args, pointer("residual"))
		}
		f := g.function(l, name, doc, nil, append(args, n, float("mean"), float("rstd"), float("avgG"), float("avgGH"))...)
		mean, rstd, avgG, avgGH := f.broadcast("mean"), f.broadcast("rstd"), f.broadcast("avgG"), f.broadcast("avgGH")
		f.loop(func() {
			u, v := f.vec(), f.vec()
			f.load(u, "dy")
			f.load(v, "gain")
			f.mul(u, u, v)
			f.sub(u, u, avgG)
			f.load(v, "x")
			f.sub(v, v, mean)
			f.mul(v, v, rstd)
			f.fnma(u, v, avgGH)
			if residual {
				f.load(v, "residual")
				f.horner(u, rstd, v)
			} else {
				f.mul(u, u, rstd)
			}
			f.store("dx", u)
			f.release(u, v)
		})
		f.end()
	}
	normInput(false)
	normInput(true)

	f = g.function(l, "largest", "is the maximum of x; there is at least one element.", []string{"top"}, x, n)
	low := f.integer("minusInfinity", 0xff800000)
	acc = f.vec()
	f.move(acc, low)
	f.loop(func() {
		u := f.vec()
		f.load(u, "x")
		f.otherwise(u, low)
		// acc stays where u is NaN: sums of exponentials show NaN anyway.
		f.max(acc, u, acc)
		f.release(u)
	})
	f.reduce("VMAXPS", acc, "top")
	f.end()

	g.exponentials(l, x, y, n)
}

const (
	geluScale = 0.7978845608028654 // sqrt(2/pi)
	geluCubic = 0.044715
)

// sigmoid is dst = 1 / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): gelu(x) = x dst.
func (f *function) sigmoid(dst, x vec) {
	t := f.vec()
	f.mul(dst, x, x)
	f.move(t, f.number("gelu3", -2*geluScale*geluCubic))
	f.horner(dst, t, f.number("gelu1", -2*geluScale))
	f.mul(dst, dst, x)
	f.release(t)
	f.exp(dst)
	t = f.vec()
	f.move(t, f.number("one", 1))
	f.add(dst, dst, t)
	f.div(dst, t, dst)
	f.release(t)
}

func (g *generator) exponentials(l level, x, y, n argument) {
	expSum := func(store bool) {
		name, doc, args := "expTotal", "adds up exp(x factor - shift).", []argument{x}
		if store {
			name, doc, args = "expSum", "is y = exp(x factor - shift), and adds it up.", []argument{y, x}
		}
		f := g.function(l, name, doc, []string{"total"}, append(args, n, float("factor"), float("shift"))...)
		factor, shift := f.broadcast("factor"), f.broadcast("shift")
		acc := f.vec()
		f.zero(acc)
		f.loop(func() {
			u := f.vec()
			f.load(u, "x")
			f.scaleShift(u, factor, shift)
			f.exp(u)
			if store {
				f.store("y", u)
			}
			f.clean(u)
			f.add(acc, acc, u)
			f.release(u)
		})
		f.reduce("VADDPS", acc, "total")
		f.end()
	}
	expSum(true)
	expSum(false)

	f := g.function(l, "expScale", "is y = exp(x - shift) factor.", nil, y, x, n, float("shift"), float("factor"))
	shift, factor := f.broadcast("shift"), f.broadcast("factor")
	f.loop(func() {
		u := f.vec()
		f.load(u, "x")
		f.sub(u, u, shift)
		f.exp(u)
		f.mul(u, u, factor)
		f.store("y", u)
		f.release(u)
	})
	f.end()

	f = g.function(l, "softmaxBackward", "is p = exp(p factor - lse), then ds = p (ds - delta) factor.", nil,
		pointer("p"), pointer("ds"), n, float("factor"), float("lse"), float("delta"))
	factor = f.broadcast("factor")
	lse, delta := f.broadcast("lse"), f.broadcast("delta")
	f.loop(func() {
		u := f.vec()
		f.load(u, "p")
		f.scaleShift(u, factor, lse)
		f.exp(u)
		f.store("p", u)
		v := f.vec()
		f.load(v, "ds")
		f.sub(v, v, delta)
		f.mul(v, v, u)
		f.mul(v, v, factor)
		f.store("ds", v)
		f.release(u, v)
	})
	f.end()
}

// scaleShift is x = x factor - shift.
func (f *function) scaleShift(x, factor, shift vec) {
	f.op3("VFMSUB213PS", x, factor, shift)
}
