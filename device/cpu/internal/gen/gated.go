package main

// gated writes the kernels of models with gated hidden layers and turned queries and keys.
func (g *generator) gated(l level) {
	n := pointer("n")
	gate, x, y, dy := pointer("gate"), pointer("x"), pointer("y"), pointer("dy")

	f := g.function(l, "swiglu", "is y = silu(gate) x.", nil, y, gate, x, n)
	f.loop(func() {
		v, s := f.vec(), f.vec()
		f.load(v, "gate")
		f.logistic(s, v)
		f.mul(s, s, v)
		f.load(v, "x")
		f.mul(s, s, v)
		f.store("y", s)
		f.release(v, s)
	})
	f.end()

	f = g.function(l, "swigluBackward", "is dgate = dy x silu'(gate) and dx = dy silu(gate).", nil,
		pointer("dgate"), pointer("dx"), dy, gate, x, n)
	f.loop(func() {
		v, s, u := f.vec(), f.vec(), f.vec()
		f.load(v, "gate")
		f.logistic(s, v)
		f.mul(v, v, s)
		// The slope s + v s (1-s) is s + (v s) - (v s) s.
		f.add(u, s, v)
		f.fnma(u, v, s)
		f.load(s, "x")
		f.mul(u, u, s)
		f.load(s, "dy")
		f.mul(u, u, s)
		f.mul(v, v, s)
		f.store("dgate", u)
		f.store("dx", v)
		f.release(v, s, u)
	})
	f.end()

	// Nothing is fused: the bits are those of the portable kernel.
	f = g.function(l, "turn", "is a = x cos - y sin and b = y cos + x sin.", nil,
		pointer("a"), pointer("b"), x, y, pointer("cos"), pointer("sin"), n)
	f.loop(func() {
		u, v, t := f.vec(), f.vec(), f.vec()
		f.load(u, "x")
		f.load(v, "cos")
		f.mul(u, u, v)
		f.load(v, "y")
		f.load(t, "sin")
		f.mul(v, v, t)
		f.sub(u, u, v)
		f.load(v, "x")
		f.mul(t, t, v)
		f.release(v)
		w, c := f.vec(), f.vec()
		f.load(w, "y")
		f.load(c, "cos")
		f.mul(w, w, c)
		f.add(w, w, t)
		f.store("a", u)
		f.store("b", w)
		f.release(u, t, w, c)
	})
	f.end()
}

// logistic is dst = 1 / (1 + exp(-x)).
func (f *function) logistic(dst, x vec) {
	f.mul(dst, x, f.number("minusOne", -1))
	f.exp(dst)
	t := f.vec()
	f.move(t, f.number("one", 1))
	f.add(dst, dst, t)
	f.div(dst, t, dst)
	f.release(t)
}
