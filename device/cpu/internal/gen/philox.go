package main

import "fmt"

// Places in the parameters of dropout, in words of 32 bits: see dropoutTask.
const (
	paramKeys   = 0 // k0 and k1 of round 0, of round 1, ...
	paramBlock  = 20
	paramSample = 22
	paramBelow  = 24
	paramScale  = 25
)

// dropout writes Philox4x32-10 on sixteen blocks at a time (sixty-four numbers), and the mask that they make.
//
// Lane 4q+i has block 4i+q, so that transposing the four words of a block within 128 bits leaves the
// numbers in their order.
func (g *generator) dropout(l level) {
	for _, residual := range []bool{false, true} {
		name, doc, args := "dropout", "is y = mask x / (1-p) for n times 64 elements.", []argument{pointer("y"), pointer("x")}
		if residual {
			name, doc, args = "dropoutAdd", "is dropout plus residual.", append(args, pointer("residual"))
		}
		f := g.function(l, name, doc, nil, append(args, words("params"), pointer("n"))...)
		end, next := f.label("end"), f.label("next")
		f.op("XORQ AX, AX")
		f.op("TESTQ CX, CX")
		f.op("JZ %s", end)
		var c [4]vec
		for i := range c {
			c[i] = f.vec()
		}
		if l == avx512 {
			f.op("MOVL $0xAAAA, BX")
			f.op("KMOVW BX, K2")
		}
		f.at(next)
		for i := range c {
			f.word(c[i], paramBlock+i)
		}
		f.paddd(c[0], constant("philoxLanes"))
		for round := range 10 {
			f.philoxRound(&c, round)
		}
		f.transpose4(&c)
		t := f.vec()
		for i, w := range c {
			f.word(t, paramBelow)
			for u := range w {
				if l == avx512 {
					f.op("VPCMPUD $5, Z%d, Z%d, K1", t[u], w[u]) // not less
				} else {
					f.op("VPMAXUD Y%d, Y%d, Y%d", t[u], w[u], t[u])
					f.op("VPCMPEQD Y%d, Y%d, Y%d", t[u], w[u], w[u])
				}
			}
			f.word(t, paramScale)
			for u, r := range w {
				x := fmt.Sprintf("%d(%s)(AX*1)", 64*i+u*f.bytes(), f.reg["x"])
				if l == avx512 {
					f.op("VMULPS.Z %s, Z%d, K1, Z%d", x, t[u], r)
				} else {
					f.op("VMULPS %s, Y%d, Y%d", x, t[u], t[u])
					f.op("VANDPS Y%d, Y%d, Y%d", t[u], r, r)
				}
				if residual {
					f.op("VADDPS %d(%s)(AX*1), %s, %s", 64*i+u*f.bytes(), f.reg["residual"], f.r(r), f.r(r))
				}
				f.op("VMOVUPS %s, %d(%s)(AX*1)", f.r(r), 64*i+u*f.bytes(), f.reg["y"])
			}
		}
		f.op("ADDQ $256, AX")
		f.op("ADDL $16, %d(%s)", 4*paramBlock, f.reg["params"])
		f.op("DECQ CX")
		f.op("JNZ %s", next)
		f.at(end)
		f.end()
	}
}

// word fills a vector with one of the parameters.
func (f *function) word(v vec, param int) {
	for _, r := range v {
		f.op("VPBROADCASTD %d(%s), %s", 4*param, f.reg["params"], f.r(r))
	}
}

func (f *function) paddd(v vec, b operand) {
	for u, r := range v {
		ref := b.unit(f, u)
		if u > 0 {
			ref = fmt.Sprintf("%s<>+%d(SB)", b, u*f.bytes())
		}
		f.op("VPADDD %s, %s, %s", ref, f.r(r), f.r(r))
	}
}

// philoxRound is (c0, c1, c2, c3) = (hi1^c1^k0, lo1, hi0^c3^k1, lo0) with hi0:lo0 = c0 M0 and
// hi1:lo1 = c2 M1.
func (f *function) philoxRound(c *[4]vec, round int) {
	xor := "VPXOR"
	if f.level == avx512 {
		xor = "VPXORD"
	}
	m := [2]constant{f.integer("philoxM0", 0xD2511F53), f.integer("philoxM1", 0xCD9E8D57)}
	for u := range c[0] {
		odd, hi := f.unit(), [2]int{f.unit(), f.unit()}
		for i := range 2 {
			x := c[2*i][u]
			f.op("VPSRLQ $32, %s, %s", f.r(x), f.r(odd))
			f.op("VPMULUDQ %s, %s, %s", m[i].unit(f, u), f.r(x), f.r(hi[i]))
			f.op("VPMULUDQ %s, %s, %s", m[i].unit(f, u), f.r(odd), f.r(odd))
			f.op("VPMULLD %s, %s, %s", m[i].unit(f, u), f.r(x), f.r(x)) // the low halves, in place
			// The high halves of even lanes lie in the odd ones.
			if f.level == avx512 {
				f.op("VPSHUFD $0xF5, %s, %s", f.r(hi[i]), f.r(hi[i]))
				f.op("VMOVDQA32 %s, K2, %s", f.r(odd), f.r(hi[i]))
			} else {
				f.op("VPSRLQ $32, %s, %s", f.r(hi[i]), f.r(hi[i]))
				f.op("VPBLENDD $0xAA, %s, %s, %s", f.r(odd), f.r(hi[i]), f.r(hi[i]))
			}
		}
		for i := range 2 {
			// hi1 goes with c1 and k0, hi0 with c3 and k1.
			h := hi[1-i]
			f.op("VPBROADCASTD %d(%s), %s", 4*(paramKeys+2*round+i), f.reg["params"], f.r(odd))
			f.op("%s %s, %s, %s", xor, f.r(odd), f.r(h), f.r(h))
			f.op("%s %s, %s, %s", xor, f.r(c[2*i+1][u]), f.r(h), f.r(h))
		}
		// The registers change their roles instead of their contents.
		old := [4]int{c[0][u], c[1][u], c[2][u], c[3][u]}
		c[0][u], c[1][u], c[2][u], c[3][u] = hi[1], old[2], hi[0], old[0]
		f.free = append(f.free, odd, old[1], old[3])
	}
}

// transpose4 exchanges words and blocks within every 128 bits.
func (f *function) transpose4(c *[4]vec) {
	for u := range c[0] {
		a, b, x, y := c[0][u], c[1][u], c[2][u], c[3][u]
		p, q := f.unit(), f.unit()
		f.op("VPUNPCKLDQ %s, %s, %s", f.r(b), f.r(a), f.r(p)) // a0 b0 a1 b1
		f.op("VPUNPCKHDQ %s, %s, %s", f.r(b), f.r(a), f.r(a)) // a2 b2 a3 b3
		f.op("VPUNPCKLDQ %s, %s, %s", f.r(y), f.r(x), f.r(q)) // x0 y0 x1 y1
		f.op("VPUNPCKHDQ %s, %s, %s", f.r(y), f.r(x), f.r(x)) // x2 y2 x3 y3
		f.op("VPUNPCKHQDQ %s, %s, %s", f.r(q), f.r(p), f.r(b))
		f.op("VPUNPCKLQDQ %s, %s, %s", f.r(q), f.r(p), f.r(p))
		f.op("VPUNPCKHQDQ %s, %s, %s", f.r(x), f.r(a), f.r(y))
		f.op("VPUNPCKLQDQ %s, %s, %s", f.r(x), f.r(a), f.r(x))
		c[0][u], c[1][u], c[2][u], c[3][u] = p, b, x, y
		f.free = append(f.free, q, a)
	}
}
