package main

import (
	"fmt"
	"strings"
)

// flushSubnormals makes subnormal operands and results 0 until LDMXCSR 0(SP): what VDPBF16PS does at all times. The
// frame of the function has 8 bytes.
func (f *function) flushSubnormals() {
	const flushToZero, denormalsAreZero = 1 << 15, 1 << 6
	f.op("STMXCSR 0(SP)")
	f.op("MOVL 0(SP), BX")
	f.op("ORL $%#x, BX", flushToZero|denormalsAreZero)
	f.op("MOVL BX, 4(SP)")
	f.op("LDMXCSR 4(SP)")
}

// upperHalves is a register with ones in the upper half of each lane.
func (f *function) upperHalves() int {
	r := f.unit()
	f.op("VMOVUPS %s, %s", f.integer("upperHalves", 0xffff0000).unit(f, 0), f.r(r))
	return r
}

// half takes the odd or even elements of the pairs at an address.
func (f *function) half(odd bool, upper int, at string, dst int) {
	switch {
	case f.level == avx512 && odd:
		f.op("VPANDD %s, Z%d, Z%d", at, upper, dst)
	case f.level == avx512:
		f.op("VPSLLD $16, %s, Z%d", at, dst)
	case odd:
		f.op("VPAND %s, Y%d, Y%d", at, upper, dst)
	default:
		f.op("VMOVDQU %s, Y%d", at, dst)
		f.op("VPSLLD $16, Y%d, Y%d", dst, dst)
	}
}

// halfOfAll is the odd or even element of one pair, in every lane.
func (f *function) halfOfAll(odd bool, upper int, at string, dst int) {
	switch {
	case f.level == avx512 && odd:
		f.op("VPANDD.BCST %s, Z%d, Z%d", at, upper, dst)
	case f.level == avx512:
		f.op("VPSLLD.BCST $16, %s, Z%d", at, dst)
	default:
		f.op("VBROADCASTSS %s, Y%d", at, dst)
		if odd {
			f.op("VPAND Y%d, Y%d, Y%d", upper, dst, dst)
		} else {
			f.op("VPSLLD $16, Y%d, Y%d", dst, dst)
		}
	}
}

// dot is sum = fma(a0, b0, fma(a1, b1, sum)) with pairs (a0, a1) and (b0, b1): VDPBF16PS, which the assembler of Go does
// not know, as EVEX.512.F3.0F38.W0 52 /r.
func (f *function) dot(a, b, sum int) {
	not := func(r, bit, to int) int { return (^r >> bit & 1) << to }
	code := []int{
		0x62,
		not(sum, 3, 7) | not(a, 4, 6) | not(a, 3, 5) | not(sum, 4, 4) | 2,
		(^b&15)<<3 | 1<<2 | 2,
		2<<5 | not(b, 4, 3),
		0x52,
		0xc0 | (sum&7)<<3 | a&7,
	}
	var bytes []string
	for _, c := range code {
		bytes = append(bytes, fmt.Sprintf("BYTE $%#02x", c))
	}
	f.op("%s // VDPBF16PS Z%d, Z%d, Z%d", strings.Join(bytes, "; "), a, b, sum)
}

// halves writes the conversions of sixteen elements at a time.
func (g *generator) halves(l level) {
	f := g.function(l, "widen", "is dst = src for n times 16 elements.", nil, pointer("dst"), half("src"), pointer("n"))
	f.eachSixteen(func() {
		v := f.vec()
		for i, r := range v {
			f.op("VPMOVZXWD %d(%s), %s", i*f.bytes()/2, f.reg["src"], f.r(r))
			f.op("VPSLLD $16, %s, %s", f.r(r), f.r(r))
		}
		f.put("dst", v)
		f.release(v)
	}, "dst", 64, "src", 32)
	f.end()

	// u + 0x7fff + (bit 16 of u) carries into the upper half where u is nearer to the next number, or between two and
	// odd. NaN would overflow: it keeps its upper half, made quiet. VCVTNEPS2BF16 would do but for subnormals, which it makes 0.
	f = g.function(l, "narrow", "is dst = src, rounded to the nearest, ties to even, for n times 16 elements.", nil, half("dst"), pointer("src"), pointer("n"))
	bias, one, quiet := f.integer("halfBias", 0x7fff), f.integer("halfOne", 1), f.integer("halfQuiet", 0x40)
	f.eachSixteen(func() {
		u, v := f.vec(), f.vec()
		for i := range u {
			x, y := u[i], v[i]
			f.op("VMOVUPS %d(%s), %s", i*f.bytes(), f.reg["src"], f.r(x))
			f.op("VPSRLD $16, %s, %s", f.r(x), f.r(y))
			if l == avx512 {
				f.op("VCMPPS $3, Z%d, Z%d, K1", x, x)
				f.op("VPORD %s, Z%d, K1, Z%d", quiet.unit(f, i), y, y)
				f.op("KNOTW K1, K2")
				t := f.unit()
				f.op("VPANDD %s, Z%d, Z%d", one.unit(f, i), y, t)
				f.op("VPADDD Z%d, Z%d, Z%d", t, x, x)
				f.op("VPADDD %s, Z%d, Z%d", bias.unit(f, i), x, x)
				f.op("VPSRLD $16, Z%d, K2, Z%d", x, y)
				f.op("VPMOVDW Z%d, (%s)", y, f.reg["dst"])
				f.free = append(f.free, t)
				continue
			}
			t, m := f.unit(), f.unit()
			f.op("VCMPPS $3, Y%d, Y%d, Y%d", x, x, m)
			f.op("VPAND %s, Y%d, Y%d", one.unit(f, i), y, t)
			f.op("VPOR %s, Y%d, Y%d", quiet.unit(f, i), y, y)
			f.op("VPADDD Y%d, Y%d, Y%d", t, x, x)
			f.op("VPADDD %s, Y%d, Y%d", bias.unit(f, i), x, x)
			f.op("VPSRLD $16, Y%d, Y%d", x, x)
			f.op("VPBLENDVB Y%d, Y%d, Y%d, Y%d", m, y, x, y)
			f.free = append(f.free, t, m)
		}
		if l == avx2 {
			// The halves of both registers come out in the order 0, 2, 1, 3.
			f.op("VPACKUSDW Y%d, Y%d, Y%d", v[1], v[0], v[0])
			f.op("VPERMQ $0xD8, Y%d, Y%d", v[0], v[0])
			f.op("VMOVDQU Y%d, (%s)", v[0], f.reg["dst"])
		}
		f.release(u, v)
	}, "dst", 32, "src", 64)
	f.end()
}

// eachSixteen runs body n times; pointers go on by the bytes behind their names.
func (f *function) eachSixteen(body func(), dst string, d int, src string, s int) {
	f.op("TESTQ CX, CX")
	f.op("JZ end")
	f.at("next")
	body()
	f.op("ADDQ $%d, %s", d, f.reg[dst])
	f.op("ADDQ $%d, %s", s, f.reg[src])
	f.op("DECQ CX")
	f.op("JNZ next")
	f.at("end")
}

// put stores a vector where a pointer is.
func (f *function) put(p string, v vec) {
	for i, r := range v {
		f.op("VMOVUPS %s, %d(%s)", f.r(r), i*f.bytes(), f.reg[p])
	}
}

// pair writes the kernel that brings two rows of bfloat16 together.
func (g *generator) pair(l level) {
	f := g.function(l, "pair", "is dst[i,j] = (src[2i,j], src[2i+1,j]) for rows i and 16 n columns j; rows are ldd and lds bytes apart.", nil,
		pointer("dst"), pointer("ldd"), half("src"), pointer("lds"), pointer("rows"), pointer("n"))
	dst, src, second := f.reg["dst"], f.reg["src"], "BX"
	f.op("TESTQ CX, CX")
	f.op("JZ end")
	f.op("TESTQ %s, %s", f.reg["rows"], f.reg["rows"])
	f.op("JZ end")
	f.at("row")
	f.op("LEAQ (%s)(%s*1), %s", src, f.reg["lds"], second)
	f.op("XORQ AX, AX")
	f.op("MOVQ n+%d(FP), CX", f.offset["n"])
	f.at("next")
	u, v := f.vec(), f.vec()
	for i := range u {
		f.op("VPMOVZXWD %d(%s)(AX*1), %s", i*f.bytes()/2, src, f.r(u[i]))
		f.op("VPMOVZXWD %d(%s)(AX*1), %s", i*f.bytes()/2, second, f.r(v[i]))
		f.op("VPSLLD $16, %s, %s", f.r(v[i]), f.r(v[i]))
		if l == avx512 {
			f.op("VPORD Z%d, Z%d, Z%d", u[i], v[i], v[i])
		} else {
			f.op("VPOR Y%d, Y%d, Y%d", u[i], v[i], v[i])
		}
		f.op("VMOVUPS %s, %d(%s)(AX*2)", f.r(v[i]), i*f.bytes(), dst)
	}
	f.op("ADDQ $32, AX")
	f.op("DECQ CX")
	f.op("JNZ next")
	f.op("ADDQ %s, %s", f.reg["ldd"], dst)
	f.op("LEAQ (%s)(%s*2), %s", src, f.reg["lds"], src)
	f.op("DECQ %s", f.reg["rows"])
	f.op("JNZ row")
	f.at("end")
	f.end()
}
