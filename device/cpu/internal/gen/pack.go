package main

import "fmt"

// packing writes the copies that bring operands into the order in which products read them.
func (g *generator) packing(l level) {
	for _, width := range shapes[l].widths {
		g.packRows(l, width)
	}
}

func packName(width int) string { return fmt.Sprintf("pack%d", 16*width) }

func (g *generator) packRows(l level, width int) {
	f := g.function(l, packName(width), "copies rows rows of that many floats, lds bytes apart, one behind the other.", nil,
		pointer("dst"), pointer("src"), pointer("rows"), pointer("lds"))
	regs := f.many(width * f.units())
	f.op("TESTQ %s, %s", f.reg["rows"], f.reg["rows"])
	f.op("JZ end")
	f.at("next")
	for j, r := range regs {
		f.op("VMOVUPS %d(%s), %s", j*f.bytes(), f.reg["src"], f.r(r))
	}
	for j, r := range regs {
		f.op("VMOVUPS %s, %d(%s)", f.r(r), j*f.bytes(), f.reg["dst"])
	}
	f.op("ADDQ %s, %s", f.reg["lds"], f.reg["src"])
	f.op("ADDQ $%d, %s", len(regs)*f.bytes(), f.reg["dst"])
	f.op("DECQ %s", f.reg["rows"])
	f.op("JNZ next")
	f.at("end")
	f.end()
}

// transpose writes the transposition of eight rows, in blocks of eight columns; AVX2 does as well
// as AVX-512 here, so there is one.
func (g *generator) transpose() {
	f := g.function(avx2, "transpose", "is dst[j,i] = src[i,j] for 8 rows i and 8*blocks columns j; rows are ldd and lds bytes apart.", nil,
		pointer("dst"), pointer("ldd"), pointer("src"), pointer("lds"), pointer("blocks"))
	dst, ldd, src, lds, blocks := f.reg["dst"], f.reg["ldd"], f.reg["src"], f.reg["lds"], f.reg["blocks"]
	row := func(base, stride string, i int) {
		// AX walks down the rows.
		if i == 0 {
			f.op("MOVQ %s, AX", base)
		} else {
			f.op("ADDQ %s, AX", stride)
		}
	}
	f.op("TESTQ %s, %s", blocks, blocks)
	f.op("JZ end")
	f.at("next")
	for i := range 8 {
		row(src, lds, i)
		f.op("VMOVUPS (AX), Y%d", i)
	}
	// Pairs of rows, then fours, then the halves.
	for i := 0; i < 8; i += 2 {
		f.op("VUNPCKLPS Y%d, Y%d, Y%d", i+1, i, 8+i)
		f.op("VUNPCKHPS Y%d, Y%d, Y%d", i+1, i, 9+i)
	}
	for i := 0; i < 8; i += 4 {
		f.op("VSHUFPS $0x44, Y%d, Y%d, Y%d", 10+i, 8+i, i)
		f.op("VSHUFPS $0xEE, Y%d, Y%d, Y%d", 10+i, 8+i, i+1)
		f.op("VSHUFPS $0x44, Y%d, Y%d, Y%d", 11+i, 9+i, i+2)
		f.op("VSHUFPS $0xEE, Y%d, Y%d, Y%d", 11+i, 9+i, i+3)
	}
	for i := range 4 {
		f.op("VPERM2F128 $0x20, Y%d, Y%d, Y%d", 4+i, i, 8+i)
		f.op("VPERM2F128 $0x31, Y%d, Y%d, Y%d", 4+i, i, 12+i)
	}
	for i := range 8 {
		row(dst, ldd, i)
		f.op("VMOVUPS Y%d, (AX)", 8+i)
	}
	f.op("ADDQ $32, %s", src)
	f.op("LEAQ (%s)(%s*8), %s", dst, ldd, dst)
	f.op("DECQ %s", blocks)
	f.op("JNZ next")
	f.at("end")
	f.end()
}

// peak writes the loops that measure how many fused multiply-adds a core can do.
func (g *generator) peak(l level) {
	g.peakOf(l, "peak", "does n times peakSums fused multiply-adds of one vector register each.", func(f *function, one, sum int) {
		f.op("VFMADD231PS %s, %s, %s", f.r(one), f.r(one), f.r(sum))
	})
	if l == avx512 {
		g.peakOf(l, "peakDots", "does n times peakSums VDPBF16PS.", func(f *function, one, sum int) { f.dot(one, one, sum) })
	}
}

func (g *generator) peakOf(l level, name, doc string, add func(f *function, one, sum int)) {
	f := g.function(l, name, doc, nil, pointer("n"))
	one := f.unit()
	f.zero(vec{one})
	sums := f.many(12)
	for _, r := range sums {
		f.zero(vec{r})
	}
	f.at("next")
	for _, r := range sums {
		add(f, one, r)
	}
	f.op("DECQ CX")
	f.op("JNZ next")
	f.end()
}
