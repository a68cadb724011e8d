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

// products writes the kernels of the matrix product.
//
// C[i,j] = (or +=) sum over k of A(i,k) B[k,j], one fused multiply-add after the other, k ascending.
// Two forms: A is stored by rows, A(i,k) = a[i lda + k], or by columns, A(i,k) = a[k lda + i]. B has
// rows of width elements, C too. All strides are bytes.
func (g *generator) products(l level) {
	s := shapes[l]
	fmt.Fprintf(&g.stubs, "\n// products%s are the products of %d-bit vectors.\nvar products%s = productTable{\n", l, l, l)
	fmt.Fprintf(&g.stubs, "\trows:   %#v,\n\twidths: %#v,\n\tkernel: [2][][]product{\n", s.rows, s.widths)
	for _, columns := range []bool{false, true} {
		fmt.Fprintf(&g.stubs, "\t\t{\n")
		for _, rows := range s.rows {
			fmt.Fprintf(&g.stubs, "\t\t\t{")
			for i, w := range s.widths {
				if i > 0 {
					fmt.Fprint(&g.stubs, ", ")
				}
				fmt.Fprint(&g.stubs, productName(columns, rows, w), l)
			}
			fmt.Fprintf(&g.stubs, "},\n")
		}
		fmt.Fprintf(&g.stubs, "\t\t},\n")
	}
	fmt.Fprintf(&g.stubs, "\t},\n\tpack: [4]packer{")
	for _, w := range s.widths {
		fmt.Fprintf(&g.stubs, "%d: %s%s, ", w, packName(w), l)
	}
	fmt.Fprintf(&g.stubs, "},\n\ttranspose: transposeAVX2,\n}\n")
	for _, columns := range []bool{false, true} {
		for _, rows := range s.rows {
			for _, w := range s.widths {
				g.product(l, columns, rows, w)
			}
		}
	}
}

func productName(columns bool, rows, width int) string {
	form := "Rows"
	if columns {
		form = "Columns"
	}
	return fmt.Sprintf("product%s%dx%d", form, rows, 16*width)
}

func (g *generator) product(l level, columns bool, rows, width int) {
	f := g.function(l, productName(columns, rows, width), "", nil,
		pointer("k"), pointer("a"), pointer("lda"), pointer("b"), pointer("ldb"), pointer("c"), pointer("ldc"), pointer("add"))
	fmt.Fprintf(&g.stubs, "\n//go:noescape\nfunc %s(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int, add int)\n", f.name)
	k, a, lda, b, ldb, c, ldc, add := f.reg["k"], f.reg["a"], f.reg["lda"], f.reg["b"], f.reg["ldb"], f.reg["c"], f.reg["ldc"], f.reg["add"]
	regs := width * f.units() // registers of a row of B or C
	z := f.bytes()

	sums := make([][]int, rows)
	bs := f.many(regs)
	for i := range sums {
		sums[i] = f.many(regs)
		f.zero(sums[i])
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
		for j, r := range bs {
			f.op("VMOVUPS %s, %s", fourth(b, ldb, ldb3, u, j*z), f.r(r))
		}
		for i := range rows {
			x := as[i%len(as)]
			f.op("VBROADCASTSS %s, %s", element(i, u), f.r(x))
			for j, r := range bs {
				f.op("VFMADD231PS %s, %s, %s", f.r(r), f.r(x), f.r(sums[i][j]))
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
	const unroll = 4
	f.op("SUBQ $%d, %s", unroll, k)
	f.op("JLT rest")
	f.at("four")
	for u := range unroll {
		step(u)
	}
	advance(unroll)
	f.op("SUBQ $%d, %s", unroll, k)
	f.op("JGE four")
	f.at("rest")
	f.op("ADDQ $%d, %s", unroll, k)
	f.op("JZ store")
	f.at("one")
	step(0)
	advance(1)
	f.op("DECQ %s", k)
	f.op("JNZ one")
	f.at("store")
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
