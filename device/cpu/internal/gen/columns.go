package main

// columns writes the kernels that run down the rows of a block of columns, and those of the
// optimizers. None of them fuses a product with a sum: their bits are those of the portable kernels.
func (g *generator) columns(l level) {
	n := pointer("n")

	f := g.function(l, "sumRows", "is dst += each of rows rows of src, stride bytes apart.", nil,
		pointer("dst"), pointer("src"), n, pointer("rows"), pointer("stride"))
	f.eachRow(func() {
		u, v := f.vec(), f.vec()
		f.load(u, "dst")
		f.load(v, "src")
		f.add(u, u, v)
		f.store("dst", u)
		f.release(u, v)
	}, nil, "src")
	f.end()

	f = g.function(l, "normWeight", "is dgain += dy (x - mean) rstd and dbias += dy for each of rows rows, stride bytes apart.", nil,
		pointer("dgain"), pointer("dbias"), pointer("dy"), pointer("x"), pointer("mean"), pointer("rstd"), n, pointer("rows"), pointer("stride"))
	mean, rstd := f.unit(), f.unit()
	wide := func(r int) vec {
		v := make(vec, f.units())
		for i := range v {
			v[i] = r
		}
		return v
	}
	f.eachRow(func() {
		u, v, w := f.vec(), f.vec(), f.vec()
		f.load(u, "dy")
		f.load(v, "x")
		f.sub(v, v, wide(mean))
		f.mul(v, v, wide(rstd))
		f.mul(v, v, u)
		f.load(w, "dgain")
		f.add(w, w, v)
		f.store("dgain", w)
		f.load(w, "dbias")
		f.add(w, w, u)
		f.store("dbias", w)
		f.release(u, v, w)
	}, func() {
		f.op("VBROADCASTSS (%s), %s", f.reg["mean"], f.r(mean))
		f.op("VBROADCASTSS (%s), %s", f.reg["rstd"], f.r(rstd))
		f.op("ADDQ $4, %s", f.reg["mean"])
		f.op("ADDQ $4, %s", f.reg["rstd"])
	}, "dy", "x")
	f.end()

	f = g.function(l, "rmsWeight", "is dgain += dy x rstd for each of rows rows, stride bytes apart.", nil,
		pointer("dgain"), pointer("dy"), pointer("x"), pointer("rstd"), n, pointer("rows"), pointer("stride"))
	rstd = f.unit()
	f.eachRow(func() {
		u, v := f.vec(), f.vec()
		f.load(v, "x")
		f.mul(v, v, wide(rstd))
		f.load(u, "dy")
		f.mul(v, v, u)
		f.load(u, "dgain")
		f.add(u, u, v)
		f.store("dgain", u)
		f.release(u, v)
	}, func() {
		f.op("VBROADCASTSS (%s), %s", f.reg["rstd"], f.r(rstd))
		f.op("ADDQ $4, %s", f.reg["rstd"])
	}, "dy", "x")
	f.end()

	g.adamw(l, "adamw", "is one step of AdamW: see adamwTask.", false)
	g.adamw(l, "adamwPast", "is adamw that writes past the caches, to memory that is aligned.", true)

	f = g.function(l, "sgd", "is one step of SGD: see sgdTask.", nil,
		pointer("next"), pointer("m2"), pointer("w"), pointer("m"), pointer("grad"), n,
		float("gradScale"), float("momentum"), float("lr"), float("decay"))
	f.loop(func() {
		grad, m, w := f.vec(), f.vec(), f.vec()
		times := func(dst, a vec, name string) { f.with(name, func(c vec) { f.mul(dst, a, c) }) }
		f.load(grad, "grad")
		times(grad, grad, "gradScale")
		f.load(m, "m")
		times(m, m, "momentum")
		f.add(m, m, grad)
		f.store("m2", m)
		f.load(w, "w")
		times(grad, w, "decay")
		f.add(m, m, grad)
		times(m, m, "lr")
		f.sub(w, w, m)
		f.store("next", w)
		f.release(grad, m, w)
	})
	f.end()
}

// adamw writes a step of AdamW. One that writes past the caches saves the read of what it overwrites, three
// numbers of ten.
func (g *generator) adamw(l level, name, doc string, past bool) {
	f := g.function(l, name, doc, nil,
		pointer("next"), pointer("m2"), pointer("v2"), pointer("w"), pointer("m"), pointer("v"), pointer("grad"), pointer("n"),
		float("gradScale"), float("beta1"), float("rest1"), float("beta2"), float("rest2"), float("step"), float("rsqrt"), float("epsilon"), float("decay"))
	f.past = past
	f.loop(func() {
		grad, m, v, w := f.vec(), f.vec(), f.vec(), f.vec()
		times := func(dst, a vec, name string) { f.with(name, func(c vec) { f.mul(dst, a, c) }) }
		f.load(grad, "grad")
		times(grad, grad, "gradScale")
		f.load(m, "m")
		times(m, m, "beta1")
		times(w, grad, "rest1")
		f.add(m, m, w)
		f.load(v, "v")
		times(v, v, "beta2")
		f.mul(grad, grad, grad)
		times(grad, grad, "rest2")
		f.add(v, v, grad)
		// The quotient in grad.
		f.sqrt(grad, v)
		times(grad, grad, "rsqrt")
		f.with("epsilon", func(c vec) { f.add(grad, grad, c) })
		times(w, m, "step")
		f.div(grad, w, grad)
		f.store("m2", m)
		f.store("v2", v)
		f.load(w, "w")
		times(m, w, "decay")
		f.add(grad, grad, m)
		f.sub(w, w, grad)
		f.store("next", w)
		f.release(grad, m, v, w)
	})
	if past {
		f.op("SFENCE") // so that others see it when they are told of it
	}
	f.end()
}

// eachRow runs the loop body for each of rows rows, first before each, and moves the pointers to the next row.
func (f *function) eachRow(body, first func(), pointers ...string) {
	next, end := f.label("row"), f.label("rows")
	f.at(next)
	f.op("DECQ %s", f.reg["rows"])
	f.op("JLT %s", end)
	f.op("MOVQ n+%d(FP), CX", f.offset["n"])
	if first != nil {
		first()
	}
	f.loop(body)
	for _, p := range pointers {
		f.op("ADDQ %s, %s", f.reg["stride"], f.reg[p])
	}
	f.op("JMP %s", next)
	f.at(end)
}
