package cpu

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
)

// The plain product. op(B) is packed into panels of panelN columns, shared by all workers; each
// tile packs its rows of op(A) into panels of panelM rows and multiplies panel by panel with
// panelM*panelN sums in registers. A sum runs over k in ascending order, whatever M and N are;
// with Accumulate the finished sum is added to C, and then the bias.
const (
	panelM, panelN = 4, 4
	tileM, tileN   = 32, 128 // one tile of C
	// packedElements bounds the packed part of B: more columns are done in several passes.
	packedElements = 1 << 20
)

type matmulTask[T Float] struct {
	ops                 *rowOps[T]
	c, a, b, bias, gelu operand[T]
	m, n, k             int
	lda, ldb, ldc       int
	transA, transB      bool
	accumulate          bool

	packing     bool   // the tiles of this run pack B
	packed      []byte // panels of columns [first, last)
	first, last int
	across      int // tiles in a row of tiles
}

func (k *kernels[T]) MatMul(c, a, b device.Slice, p device.MatMul) {
	t := &k.matmul
	packed := t.packed
	*t = k.product(c, a, b, p)
	t.packed = packed
	if t.m == 0 || t.n == 0 {
		return
	}
	if k.blocked != nil {
		packed := k.blocked.packed
		k.blocked.matmulTask = *any(t).(*matmulTask[float32])
		k.blocked.packed = packed
		k.blocked.run(k.pool)
		return
	}
	columns := max(tileN, packedElements/max(1, t.k)/tileN*tileN)
	for t.first = 0; t.first < t.n; t.first = t.last {
		t.last = min(t.first+columns, t.n)
		panels := tilesOf(t.last-t.first, panelN)
		t.packed = grow(t.packed, bytesOf[T](panels*panelN*t.k))
		if t.k > 0 {
			t.packing = true
			k.pool.run(t, tilesOf(panels, tileN/panelN))
			t.packing = false
		}
		t.across = tilesOf(t.last-t.first, tileN)
		k.pool.run(t, tilesOf(t.m, tileM)*t.across)
	}
}

// product checks the operands of p.
func (k *kernels[T]) product(c, a, b device.Slice, p device.MatMul) matmulTask[T] {
	if p.M < 0 || p.N < 0 || p.K < 0 {
		panic(fmt.Sprintf("cpu: MatMul: M %d, N %d, K %d", p.M, p.N, p.K))
	}
	t := matmulTask[T]{ops: k.ops, m: p.M, n: p.N, k: p.K, transA: p.TransA, transB: p.TransB, accumulate: p.Accumulate}
	ra, ca, rb, cb := p.M, p.K, p.K, p.N
	if p.TransA {
		ra, ca = ca, ra
	}
	if p.TransB {
		rb, cb = cb, rb
	}
	if a.Type != b.Type {
		panic(fmt.Sprintf("cpu: MatMul: A is %s and B %s; they must be of one type", a.Type, b.Type))
	}
	t.a, t.lda = k.matrix("A", a, ra, ca, p.LDA)
	t.b, t.ldb = k.matrix("B", b, rb, cb, p.LDB)
	t.c, t.ldc = k.matrix("C", c, p.M, p.N, p.LDC)
	t.bias = k.ofOptional("MatMul", "bias", p.Bias, p.N)
	t.gelu = k.ofOptional("MatMul", "GELU", p.GELU, p.M*p.N)
	return t
}

// matrix is the memory of a matrix of rows x cols, ld elements from row to row (0 means cols).
func (k *kernels[T]) matrix(name string, s device.Slice, rows, cols, ld int) (operand[T], int) {
	if ld == 0 {
		ld = cols
	}
	if ld < cols {
		panic(fmt.Sprintf("cpu: MatMul: the leading dimension of %s is %d, its rows have %d elements", name, ld, cols))
	}
	if rows == 0 || cols == 0 {
		return operand[T]{}, ld
	}
	return k.ofAtLeast("MatMul", name, s, (rows-1)*ld+cols), ld
}

func (t *matmulTask[T]) tile(i int, w *worker) {
	if t.packing {
		lo, hi := span(i, tilesOf(t.last-t.first, panelN), tileN/panelN)
		for p := lo; p < hi; p++ {
			t.packB(p)
		}
		return
	}
	rlo, rhi := span(i/t.across, t.m, tileM)
	clo, chi := span(i%t.across, t.last-t.first, tileN)
	a := scratch[T](w, tilesOf(rhi-rlo, panelM)*panelM*t.k)
	if t.k > 0 {
		t.packA(a, rlo, rhi)
	}
	packed := elements[T](t.packed, tilesOf(t.last-t.first, panelN)*panelN*t.k)
	var sums [panelM][panelN]T
	for r := rlo; r < rhi; r += panelM {
		pa := a[(r-rlo)*t.k:][:panelM*t.k]
		for c := clo; c < chi; c += panelN {
			multiply(&sums, pa, packed[c*t.k:][:panelN*t.k])
			t.store(&sums, r, t.first+c)
		}
	}
}

// packB writes panel p: k rows of panelN columns, 0 beyond the last column.
func (t *matmulTask[T]) packB(p int) {
	c := t.first + p*panelN
	d := elements[T](t.packed, (p+1)*panelN*t.k)[p*panelN*t.k:]
	for j := range panelN {
		switch {
		case c+j >= t.n:
			for q := j; q < len(d); q += panelN {
				d[q] = 0
			}
		case t.transB:
			for q := range t.k {
				d[q*panelN+j] = t.b.at((c+j)*t.ldb + q)
			}
		default:
			for q := range t.k {
				d[q*panelN+j] = t.b.at(q*t.ldb + c + j)
			}
		}
	}
}

// packA writes rows [lo, hi) as panels: k columns of panelM rows, 0 beyond the last row.
func (t *matmulTask[T]) packA(dst []T, lo, hi int) {
	for r := lo; r < hi; r += panelM {
		d := dst[(r-lo)*t.k:][:panelM*t.k]
		for j := range panelM {
			switch {
			case r+j >= hi:
				for q := j; q < len(d); q += panelM {
					d[q] = 0
				}
			case t.transA:
				for q := range t.k {
					d[q*panelM+j] = t.a.at(q*t.lda + r + j)
				}
			default:
				for q := range t.k {
					d[q*panelM+j] = t.a.at((r+j)*t.lda + q)
				}
			}
		}
	}
}

// store writes the sums at row r and column c of C, with the epilogue.
func (t *matmulTask[T]) store(sums *[panelM][panelN]T, r, c int) {
	n := min(panelN, t.n-c)
	for i := range min(panelM, t.m-r) {
		for j := range n {
			s, at := sums[i][j], (r+i)*t.ldc+c+j
			if t.accumulate {
				s += t.c.at(at)
			}
			if !t.bias.none() {
				s += t.bias.at(c + j)
			}
			t.c.set(at, s)
			if !t.gelu.none() {
				s = t.c.at(at)
				geluRow(&s, &s, 1)
				t.gelu.set((r+i)*t.n+c+j, s)
			}
		}
	}
}
