package main

import "fmt"

// shape of the product kernels of a level: rows x width sums in registers.
type shape struct {
	rows   []int // largest first; the smaller ones do the rest of M
	widths []int // in sixteens, largest first
}

// On Zen 4 and on Intel's servers: 8 x 48 sums leave 8 of 32 registers for operands. AVX2 has 16
// registers: 6 x 16 sums leave 4.
var shapes = map[level]shape{
	avx512: {rows: []int{8, 4, 2, 1}, widths: []int{3, 2, 1}},
	avx2:   {rows: []int{6, 4, 2, 1}, widths: []int{1}},
}

// operands says what the 32-bit elements of A and B are.
type operands int

const (
	floats operands = iota // one float32
	// pairs are two bfloat16: the even element of k in the lower half, the odd one in the upper. Each half is the upper
	// half of a float32. The odd one is multiplied first, and subnormal numbers count as 0.
	pairs
	// dots are pairs for VDPBF16PS, which does just that.
	dots
)

func (o operands) String() string { return [...]string{"product", "pairs", "dots"}[o] }

// products writes the kernels of the matrix product.
//
// C[i,j] = (or +=) sum over k of A(i,k) B[k,j], one fused multiply-add after the other, k ascending.
// Two forms: A is stored by rows, A(i,k) = a[i lda + k], or by columns, A(i,k) = a[k lda + i]. B has
// rows of width elements, C too. All strides are bytes.
func (g *generator) products(l level) {
	g.table(l, floats, fmt.Sprintf("products%s are the products of %d-bit vectors.", l, l), fmt.Sprintf("products%s", l), func() {
		fmt.Fprintf(&g.stubs, "\tpack: [4]packer{")
		for _, w := range shapes[l].widths {
			fmt.Fprintf(&g.stubs, "%d: %s%s, ", w, packName(w), l)
		}
		fmt.Fprintf(&g.stubs, "},\n\ttranspose: transposeAVX2,\n")
	})
	g.table(l, pairs, fmt.Sprintf("pairs%s are the products of pairs of bfloat16, of %d-bit vectors.", l, l), fmt.Sprintf("pairs%s", l), func() { g.pairing(l) })
	if l == avx512 {
		g.table(l, dots, "dotsAVX512 are pairsAVX512, with the same bits, by VDPBF16PS.", "dotsAVX512", func() { g.pairing(l) })
	}
}

func (g *generator) pairing(l level) {
	fmt.Fprintf(&g.stubs, "\tpair: pair%s,\n\ttranspose: transposeAVX2,\n", l)
}

// table writes the kernels of one kind and the table of them, which rest completes.
func (g *generator) table(l level, o operands, doc, name string, rest func()) {
	s := shapes[l]
	fmt.Fprintf(&g.stubs, "\n// %s\nvar %s = productTable{\n", doc, name)
	fmt.Fprintf(&g.stubs, "\trows:   %#v,\n\twidths: %#v,\n\tkernel: [2][][]product{\n", s.rows, s.widths)
	for _, columns := range []bool{false, true} {
		fmt.Fprintf(&g.stubs, "\t\t{\n")
		for _, rows := range s.rows {
			fmt.Fprintf(&g.stubs, "\t\t\t{")
			for i, w := range s.widths {
				if i > 0 {
					fmt.Fprint(&g.stubs, ", ")
				}
				fmt.Fprint(&g.stubs, productName(o, columns, rows, w), l)
			}
			fmt.Fprintf(&g.stubs, "},\n")
		}
		fmt.Fprintf(&g.stubs, "\t\t},\n")
	}
	fmt.Fprintf(&g.stubs, "\t},\n")
	rest()
	fmt.Fprintf(&g.stubs, "}\n")
	for _, columns := range []bool{false, true} {
		for _, rows := range s.rows {
			for _, w := range s.widths {
				g.product(l, o, columns, rows, w)
			}
		}
	}
}

func productName(o operands, columns bool, rows, width int) string {
	form := "Rows"
	if columns {
		form = "Columns"
	}
	return fmt.Sprintf("%s%s%dx%d", o, form, rows, 16*width)
}

func (g *generator) product(l level, o operands, columns bool, rows, width int) {
	if o == pairs {
		g.frame = 8
	}
	f := g.function(l, productName(o, columns, rows, width), "", nil,
		pointer("k"), pointer("a"), pointer("lda"), pointer("b"), pointer("ldb"), pointer("c"), pointer("ldc"), pointer("add"))
	fmt.Fprintf(&g.stubs, "\n//go:noescape\nfunc %s(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int, add int)\n", f.name)
	k, a, lda, b, ldb, c, ldc, add := f.reg["k"], f.reg["a"], f.reg["lda"], f.reg["b"], f.reg["ldb"], f.reg["c"], f.reg["ldc"], f.reg["add"]
	regs := width * f.units() // registers of a row of B or C
	z := f.bytes()

	if o == pairs {
		f.flushSubnormals()
	}
	sums := make([][]int, rows)
	bs := f.many(regs)
	for i := range sums {
		sums[i] = f.many(regs)
		f.zero(sums[i])
	}
	upper := -1
	if o == pairs {
		upper = f.upperHalves()
	}
	as := f.many(min(len(f.free), 4))
	// Row i of A begins at a, a+lda, a+2lda, a+3lda, then the same from AX = a+4lda.
	const lda3, ldb3, a4 = "BX", "CX", "AX"
	if !columns && rows > 3 || columns {
		f.op("LEAQ (%s)(%s*2), %s", lda, lda, lda3)
	}
	if !columns && rows > 4 {
		f.op("LEAQ (%s)(%s*4), %s", a, lda, a4)
	}
	f.op("LEAQ (%s)(%s*2), %s", ldb, ldb, ldb3)
	fourth := func(base, stride, stride3 string, i, disp int) string {
		d := ""
		if disp != 0 {
			d = fmt.Sprint(disp)
		}
		switch i {
		case 0:
			return fmt.Sprintf("%s(%s)", d, base)
		case 3:
			return fmt.Sprintf("%s(%s)(%s*1)", d, base, stride3)
		}
		return fmt.Sprintf("%s(%s)(%s*%d)", d, base, stride, i)
	}
	// element (i,u) of A, u steps of k from where the loop is.
	element := func(i, u int) string {
		if columns {
			return fourth(a, lda, lda3, u, 4*i)
		}
		if i >= 4 {
			return fourth(a4, lda, lda3, i-4, 4*u)
		}
		return fourth(a, lda, lda3, i, 4*u)
	}
	step := func(u int) {
		if o == pairs {
			// The odd elements, then the even ones.
			for _, odd := range []bool{true, false} {
				for j, r := range bs {
					f.half(odd, upper, fourth(b, ldb, ldb3, u, j*z), r)
				}
				for i := range rows {
					x := as[i%len(as)]
					f.halfOfAll(odd, upper, element(i, u), x)
					for j, r := range bs {
						f.op("VFMADD231PS %s, %s, %s", f.r(r), f.r(x), f.r(sums[i][j]))
					}
				}
			}
			return
		}
		for j, r := range bs {
			f.op("VMOVUPS %s, %s", fourth(b, ldb, ldb3, u, j*z), f.r(r))
		}
		for i := range rows {
			x := as[i%len(as)]
			f.op("VBROADCASTSS %s, %s", element(i, u), f.r(x))
			for j, r := range bs {
				if o == dots {
					f.dot(r, x, sums[i][j])
				} else {
					f.op("VFMADD231PS %s, %s, %s", f.r(r), f.r(x), f.r(sums[i][j]))
				}
			}
		}
	}
	advance := func(u int) {
		if columns {
			f.op("LEAQ (%s)(%s*%d), %s", a, lda, u, a)
		} else {
			f.op("ADDQ $%d, %s", 4*u, a)
			if rows > 4 {
				f.op("ADDQ $%d, %s", 4*u, a4)
			}
		}
		f.op("LEAQ (%s)(%s*%d), %s", b, ldb, u, b)
	}
	unroll := 4
	if o == pairs {
		unroll = 2
	}
	f.op("SUBQ $%d, %s", unroll, k)
	f.op("JLT rest")
	f.at("several")
	for u := range unroll {
		step(u)
	}
	advance(unroll)
	f.op("SUBQ $%d, %s", unroll, k)
	f.op("JGE several")
	f.at("rest")
	f.op("ADDQ $%d, %s", unroll, k)
	f.op("JZ store")
	f.at("one")
	step(0)
	advance(1)
	f.op("DECQ %s", k)
	f.op("JNZ one")
	f.at("store")
	if o == pairs {
		f.op("LDMXCSR 0(SP)")
	}
	f.op("TESTQ %s, %s", add, add)
	f.op("JZ set")
	for i, row := range sums {
		for j, r := range row {
			f.op("VADDPS %d(%s), %s, %s", j*z, c, f.r(r), f.r(r))
			f.op("VMOVUPS %s, %d(%s)", f.r(r), j*z, c)
		}
		if i < rows-1 {
			f.op("ADDQ %s, %s", ldc, c)
		}
	}
	f.end()
	f.at("set")
	for i, row := range sums {
		for j, r := range row {
			f.op("VMOVUPS %s, %d(%s)", f.r(r), j*z, c)
		}
		if i < rows-1 {
			f.op("ADDQ %s, %s", ldc, c)
		}
	}
	f.end()
}

// many takes n registers.
func (f *function) many(n int) vec {
	v := make(vec, n)
	for i := range v {
		v[i] = f.unit()
	}
	return v
}
