package main

import (
	"fmt"
	"math"
)

// operand is what an instruction may read: a vector, or a constant in memory.
type operand interface {
	unit(f *function, i int) string
}

func (v vec) unit(f *function, i int) string { return f.r(v[i]) }

type constant string

func (c constant) unit(*function, int) string { return fmt.Sprintf("%s<>(SB)", string(c)) }

// number is a constant that lies in memory sixteen times.
func (f *function) number(name string, v float32) constant {
	f.constants[name] = math.Float32bits(v)
	return constant(name)
}

func (f *function) integer(name string, v uint32) constant {
	f.constants[name] = v
	return constant(name)
}

// op3 is dst = a OP b.
func (f *function) op3(name string, dst vec, a vec, b operand) {
	for i := range dst {
		f.op("%s %s, %s, %s", name, b.unit(f, i), f.r(a[i]), f.r(dst[i]))
	}
}

func (f *function) add(dst, a vec, b operand) { f.op3("VADDPS", dst, a, b) }
func (f *function) sub(dst, a vec, b operand) { f.op3("VSUBPS", dst, a, b) }
func (f *function) mul(dst, a vec, b operand) { f.op3("VMULPS", dst, a, b) }
func (f *function) div(dst, a vec, b operand) { f.op3("VDIVPS", dst, a, b) }

// min and max give b where a or b is NaN.
func (f *function) min(dst, a vec, b operand) { f.op3("VMINPS", dst, a, b) }
func (f *function) max(dst, a vec, b operand) { f.op3("VMAXPS", dst, a, b) }

// fma is dst += a b, rounded once; fnma is dst -= a b; horner is dst = dst a + b.
func (f *function) fma(dst, a vec, b operand)    { f.op3("VFMADD231PS", dst, a, b) }
func (f *function) fnma(dst, a vec, b operand)   { f.op3("VFNMADD231PS", dst, a, b) }
func (f *function) horner(dst, a vec, b operand) { f.op3("VFMADD213PS", dst, a, b) }

func (f *function) sqrt(dst, a vec) {
	for i := range dst {
		f.op("VSQRTPS %s, %s", f.r(a[i]), f.r(dst[i]))
	}
}

func (f *function) move(dst vec, a operand) {
	for i := range dst {
		f.op("VMOVUPS %s, %s", a.unit(f, i), f.r(dst[i]))
	}
}

func (f *function) zero(dst vec) {
	for _, r := range dst {
		if f.level == avx512 {
			f.op("VPXORD Z%d, Z%d, Z%d", r, r, r)
		} else {
			f.op("VXORPS Y%d, Y%d, Y%d", r, r, r)
		}
	}
}

// broadcast fills a new vector with an argument. All of its registers are one; it is only read.
func (f *function) broadcast(name string) vec {
	r := f.unit()
	f.op("VBROADCASTSS %s+%d(FP), %s", name, f.offset[name], f.r(r))
	v := make(vec, f.units())
	for i := range v {
		v[i] = r
	}
	return v
}

// with gives body an argument as a vector, for as long as body is written.
func (f *function) with(name string, body func(v vec)) {
	v := f.broadcast(name)
	body(v)
	f.release(v[:1])
}

// The masks of a tail: K1, or the top two Y registers.
const (
	maskLow, maskHigh = 14, 15
)

// loop runs body for every sixteen of the n elements and once, with masks, for the rest. In the
// body, load and store take the element that the loop is at; masked-out lanes load as 0.
func (f *function) loop(body func()) {
	if f.level == avx2 {
		f.take(maskLow)
		f.take(maskHigh)
	}
	main, rest, end := f.label("main"), f.label("rest"), f.label("end")
	f.op("XORQ AX, AX")
	f.op("SUBQ $16, CX")
	f.op("JLT %s", rest)
	f.at(main)
	body()
	f.op("ADDQ $64, AX")
	f.op("SUBQ $16, CX")
	f.op("JGE %s", main)
	f.at(rest)
	f.op("ADDQ $16, CX")
	f.op("JZ %s", end)
	f.mask()
	f.masked = true
	body()
	f.masked = false
	f.at(end)
	if f.level == avx2 {
		f.free = append(f.free, maskHigh, maskLow)
	}
}

// mask makes the mask of the first CX lanes, 0 < CX < 16.
func (f *function) mask() {
	if f.level == avx512 {
		f.op("MOVL $1, BX")
		f.op("SHLL CX, BX")
		f.op("DECL BX")
		f.op("KMOVW BX, K1")
		return
	}
	f.op("SHLQ $2, CX")
	f.op("LEAQ laneMask<>+64(SB), BX")
	f.op("SUBQ CX, BX")
	f.op("VMOVUPS (BX), Y%d", maskLow)
	f.op("VMOVUPS 32(BX), Y%d", maskHigh)
}

// address of register i of the vector that the loop is at.
func (f *function) address(p string, i int) string {
	if i == 0 {
		return fmt.Sprintf("(%s)(AX*1)", f.reg[p])
	}
	return fmt.Sprintf("%d(%s)(AX*1)", i*f.bytes(), f.reg[p])
}

func (f *function) load(dst vec, p string) {
	for i, r := range dst {
		switch {
		case !f.masked:
			f.op("VMOVUPS %s, %s", f.address(p, i), f.r(r))
		case f.level == avx512:
			f.op("VMOVUPS.Z %s, K1, Z%d", f.address(p, i), r)
		default:
			f.op("VMASKMOVPS %s, Y%d, Y%d", f.address(p, i), maskLow+i, r)
		}
	}
}

func (f *function) store(p string, v vec) {
	for i, r := range v {
		switch {
		case !f.masked && f.past:
			f.op("VMOVNTPS %s, %s", f.r(r), f.address(p, i))
		case !f.masked:
			f.op("VMOVUPS %s, %s", f.r(r), f.address(p, i))
		case f.level == avx512:
			f.op("VMOVUPS Z%d, K1, %s", r, f.address(p, i))
		default:
			f.op("VMASKMOVPS Y%d, Y%d, %s", r, maskLow+i, f.address(p, i))
		}
	}
}

// clean makes the lanes that do not count 0; before a vector is added to a sum.
func (f *function) clean(v vec) {
	if !f.masked {
		return
	}
	for i, r := range v {
		if f.level == avx512 {
			f.op("VMOVAPS.Z Z%d, K1, Z%d", r, r)
		} else {
			f.op("VANDPS Y%d, Y%d, Y%d", maskLow+i, r, r)
		}
	}
}

// otherwise makes the lanes that do not count those of c.
func (f *function) otherwise(v vec, c constant) {
	if !f.masked {
		return
	}
	for i, r := range v {
		if f.level == avx512 {
			f.op("KNOTW K1, K2")
			f.op("VMOVUPS %s, K2, Z%d", c.unit(f, i), r)
		} else {
			f.op("VMOVUPS %s, Y%d", c.unit(f, i), f.free[len(f.free)-1])
			f.op("VBLENDVPS Y%d, Y%d, Y%d, Y%d", maskLow+i, r, f.free[len(f.free)-1], r)
		}
	}
}

// reduce combines the sixteen lanes of v in a tree (8 and 8, 4 and 4, 2 and 2) and stores the result.
func (f *function) reduce(op string, v vec, result string) {
	a := v[0]
	if f.level == avx512 {
		t := f.unit()
		f.op("VEXTRACTF64X4 $1, Z%d, Y%d", a, t)
		f.op("%s Y%d, Y%d, Y%d", op, t, a, a)
		f.free = append(f.free, t)
	} else {
		f.op("%s Y%d, Y%d, Y%d", op, v[1], a, a)
	}
	t := f.unit()
	f.op("VEXTRACTF128 $1, Y%d, X%d", a, t)
	f.op("%s X%d, X%d, X%d", op, t, a, a)
	f.op("VPERMILPS $0x4E, X%d, X%d", a, t)
	f.op("%s X%d, X%d, X%d", op, t, a, a)
	f.op("VPERMILPS $0xB1, X%d, X%d", a, t)
	f.op("%s X%d, X%d, X%d", op, t, a, a)
	f.op("VMOVSS X%d, %s+%d(FP)", a, result, f.offset[result])
	f.free = append(f.free, t)
}

// exp is x = e^x on every lane, within 2 units in the last place: 2^n times a polynomial in
// r = x - n log 2, |r| < 0.35 (coefficients of Moshier's Cephes). Over- and underflow are as in
// IEEE arithmetic, NaN stays NaN.
func (f *function) exp(x vec) {
	// min and max with x as the second operand keep NaN.
	n, p := f.vec(), f.vec()
	f.move(n, f.number("expHigh", 89))
	f.min(x, n, x)
	f.move(n, f.number("expLow", -104))
	f.max(x, n, x)
	f.mul(n, x, f.number("log2e", math.Log2E))
	for _, r := range n {
		if f.level == avx512 {
			f.op("VRNDSCALEPS $8, Z%d, Z%d", r, r)
		} else {
			f.op("VROUNDPS $8, Y%d, Y%d", r, r)
		}
	}
	f.fnma(x, n, f.number("ln2High", 0.693359375))
	f.fnma(x, n, f.number("ln2Low", -2.12194440e-4))
	f.move(p, f.number("exp0", 1.9875691500e-4))
	f.horner(p, x, f.number("exp1", 1.3981999507e-3))
	f.horner(p, x, f.number("exp2", 8.3334519073e-3))
	f.horner(p, x, f.number("exp3", 4.1665795894e-2))
	f.horner(p, x, f.number("exp4", 1.6666665459e-1))
	f.horner(p, x, f.number("exp5", 5.0000001201e-1))
	// e^r = (p r^2 + r) + 1.
	f.mul(p, p, x)
	f.horner(x, p, x)
	f.add(x, x, f.number("one", 1))
	if f.level == avx512 {
		for i := range x {
			f.op("VSCALEFPS Z%d, Z%d, Z%d", n[i], x[i], x[i])
		}
	} else {
		// 2^n in two halves, so that neither over- or underflows before the product does.
		bias := f.integer("exponentBias", 127)
		for i := range x {
			f.op("VCVTPS2DQ Y%d, Y%d", n[i], n[i])
			f.op("VPSRAD $1, Y%d, Y%d", n[i], p[i])
			f.op("VPSUBD Y%d, Y%d, Y%d", p[i], n[i], n[i])
			for _, half := range []int{n[i], p[i]} {
				f.op("VPADDD %s, Y%d, Y%d", bias.unit(f, i), half, half)
				f.op("VPSLLD $23, Y%d, Y%d", half, half)
				f.op("VMULPS Y%d, Y%d, Y%d", half, x[i], x[i])
			}
		}
	}
	f.release(n, p)
}
