package cpu

import "unsafe"

// The blocked product, for float32 with vector kernels (Goto and van de Geijn 2008). K is cut into
// equal chunks of at most maxChunk; the columns of op(B) into panels. Panels are packed, shared by
// all workers, where that pays. A tile of C is some rows by some panels, whose operands stay in the
// second-level cache; a kernel makes up to 8 x 48 sums of it at a time.
//
// Products of bfloat16 go the same way. Their unit of K is a pair: the elements 2k and 2k+1 in a word of 32 bits, as
// VDPBF16PS wants them; K is counted in pairs below, and an odd one ends with a 0. A pair is added as
// fma(a0, b0, fma(a1, b1, sum)) with subnormal operands and results taken as 0. That is what VDPBF16PS computes, to the bit: it was
// found on Zen 4 over 40 million inputs with cancellation, overflow and subnormals, agrees with Intel's description, and is
// checked on the processor before the instruction is used. So the other levels, with two fused multiply-adds for a pair, give
// the same bits. Rows of A are read where they lie if K is even; otherwise a tile packs its part of A as well.
//
// The sum of one element runs over a chunk in registers, k ascending, fused multiply-adds only, and
// chunk sums are added in order: an order that depends on K alone. With Accumulate, C is added to the
// finished sum, and then the bias.
const (
	maxChunk = 1024
	// passElements bounds the packed part of B. What is more takes several passes: over columns,
	// or, where that would leave few columns, over columns and chunks.
	passElements, passColumns = 1 << 20, 192
	// fewRows: a product of no more rows reads B where it lies; to pack it costs more than it saves.
	fewRows = 128
	// The elements of A and the panels of B in a tile, at most.
	tileA, tilePanels = 48 << 10, 8
)

type blockedTask struct {
	matmulTask[float32]
	ops   *rowOps[float32]
	table *productTable

	product *productTable // of floats or of pairs
	pairs   bool          // A and B are of bfloat16
	depth   int           // K, or its pairs
	// a and b are the words of A and B, lda and ldb of them from row to row; nil where they have to be packed
	// element by element.
	words struct {
		a, b     []float32
		lda, ldb int
	}

	chunks, chunk int    // how many chunks, and how long
	pack          bool   // B is packed
	panels        panels // of this pass
	columns       int    // columns of this pass, rounded up to 16
	fromC, toC    int    // chunks of this pass: all, or one
	rowsPer       int    // rows of a tile
	panelsPer     int    // panels of a tile
}

// view says how A and B are read.
func (t *blockedTask) view() {
	t.product, t.depth, t.pairs = t.table, t.k, false
	t.words.a, t.words.lda = t.matmulTask.a.wide, t.lda
	t.words.b, t.words.ldb = t.matmulTask.b.wide, t.ldb
	if !anyNarrow(&t.matmulTask.a, &t.matmulTask.b) {
		return
	}
	t.product, t.depth, t.pairs = t.table.pairs, tilesOf(t.k, 2), true
	t.words.a, t.words.lda = wordsOf(t.matmulTask.a.narrow, t.lda, !t.transA && t.k%2 == 0)
	t.words.b, t.words.ldb = wordsOf(t.matmulTask.b.narrow, t.ldb, t.transB && t.k%2 == 0)
}

// wordsOf are the pairs of rows of ld elements, nil unless rows are of pairs.
func wordsOf(v []BFloat16, ld int, rows bool) ([]float32, int) {
	if !rows || ld%2 != 0 {
		return nil, 0
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(v))), len(v)/2), ld / 2
}

func (t *blockedTask) run(p *pool) {
	t.view()
	t.chunks = max(1, tilesOf(t.depth, maxChunk))
	t.chunk = tilesOf(t.depth, t.chunks)
	t.pack = t.pairs || t.transB || t.m > fewRows || t.n%16 != 0
	columns, chunks := t.n, t.chunks
	if t.pack {
		columns = passElements / max(1, t.depth) / 48 * 48
		// Sums that are not final cannot wait in a C of bfloat16.
		if columns < passColumns && !t.accumulate && t.c.narrow == nil {
			columns, chunks = passElements/t.chunk/48*48, 1
		}
	}
	columns = max(48, columns)
	for t.first = 0; t.first < t.n; t.first = t.last {
		t.last = min(t.first+columns, t.n)
		t.panels = panelsOf(t.last-t.first, t.product.widths)
		t.columns = tilesOf(t.last-t.first, 16) * 16
		t.cut(len(p.workers))
		for t.fromC = 0; t.fromC < t.chunks; t.fromC = t.toC {
			t.toC = t.fromC + chunks
			if t.pack && t.depth > 0 {
				t.packed = grow(t.packed, 4*t.columns*chunks*t.chunk)
				t.packing = true
				p.run(t, t.packTiles()*chunks)
				t.packing = false
			}
			p.run(t, tilesOf(t.m, t.rowsPer)*t.across)
		}
	}
}

// cut chooses the tiles: as large as the cache likes, but several for each worker.
func (t *blockedTask) cut(workers int) {
	rows := t.product.rows[0]
	t.rowsPer = max(rows, tileA/max(1, t.chunk)/rows*rows)
	t.panelsPer = min(tilePanels, t.panels.count())
	for workers > 1 && tilesOf(t.m, t.rowsPer)*tilesOf(t.panels.count(), t.panelsPer) < 4*workers {
		switch {
		case t.panelsPer > 2:
			t.panelsPer = tilesOf(t.panelsPer, 2)
		case t.rowsPer > 2*rows:
			t.rowsPer = tilesOf(t.rowsPer/rows, 2) * rows
		default:
			t.across = tilesOf(t.panels.count(), t.panelsPer)
			return
		}
	}
	t.across = tilesOf(t.panels.count(), t.panelsPer)
}

func (t *blockedTask) tile(i int, w *worker) {
	if t.packing {
		t.packTile(i%t.packTiles(), t.fromC+i/t.packTiles())
		return
	}
	rlo, rhi := span(i/t.across, t.m, t.rowsPer)
	plo, phi := span(i%t.across, t.panels.count(), t.panelsPer)
	clo, _ := t.panels.at(plo)
	chi, width := t.panels.at(phi - 1)
	chi = min(chi+16*width, t.last-t.first)

	// Sums that are not yet final, or to be rounded, and panels that reach over the edge, do not go to C.
	aside := t.accumulate && t.chunks > 1 || chi%16 != 0 || t.c.narrow != nil
	ld := tilesOf(chi-clo, 16) * 16
	asideElements, packedElements := 0, 0
	if aside {
		asideElements = (rhi - rlo) * ld
	}
	if t.pairs && t.words.a == nil {
		packedElements = t.packedA(rhi-rlo, t.chunk)
	}
	memory := scratch[float32](w, asideElements+packedElements+3*ld)
	block, packed, rows := memory[:asideElements], memory[asideElements:][:packedElements], memory[asideElements+packedElements:]
	c, ldc := block, ld
	if !aside {
		c, ldc = t.c.wide[rlo*t.ldc+t.first+clo:], t.ldc
	}
	for chunk := t.fromC; chunk < t.toC; chunk++ {
		klo, khi := span(chunk, t.depth, t.chunk)
		if khi <= klo {
			continue
		}
		add := 0
		if chunk > t.fromC || !aside && (chunk > 0 || t.accumulate) {
			add = 1
		}
		t.multiply(c, ldc, packed, rlo, rhi, klo, khi, plo, phi, clo, add)
	}
	if t.depth == 0 && (aside || !t.accumulate) {
		for r := range rhi - rlo {
			clear(c[r*ldc : r*ldc+chi-clo])
		}
	}
	t.finish(block, ld, rows, rlo, rhi, t.first+clo, t.first+chi)
}

// multiply adds (or sets) the chunk [klo, khi) of rows [rlo, rhi) and panels [plo, phi) to the
// block c, whose first column is column clo of the pass.
//
// A is read where it lies, if it can be: a kernel touches 8 rows of it, or 32 bytes of each of its stored rows,
// which then stay in the first-level cache for all panels.
func (t *blockedTask) multiply(c []float32, ldc int, packed []float32, rlo, rhi, klo, khi, plo, phi, clo, add int) {
	kc := khi - klo
	a, lda := t.words.a, t.words.lda
	corner := rlo*lda + klo // the element of A for row rlo and klo
	byColumns := 0
	if t.transA {
		byColumns = 1
		corner = klo*lda + rlo
	}
	if a == nil {
		a, corner = packed, 0
		lda = t.packA(packed, rlo, rhi, klo, khi)
	}
	for p := plo; p < phi; p++ {
		column, width := t.panels.at(p)
		var b *float32
		ldb := 4 * t.words.ldb
		if t.pack {
			b, ldb = first(t.packedPanel(column, width, klo, khi)), 64*width
		} else {
			b = &t.words.b[klo*t.words.ldb+t.first+column]
		}
		kernels := t.product.kernel[byColumns]
		wi := t.product.widthIndex(width)
		r := rlo
		for ri, rows := range t.product.rows {
			kernel := kernels[ri][wi]
			for ; r+rows <= rhi; r += rows {
				at := corner + (r-rlo)*lda
				if t.transA {
					at = corner + r - rlo
				}
				kernel(kc, &a[at], 4*lda, b, ldb, &c[(r-rlo)*ldc+column-clo], 4*ldc, add)
			}
		}
	}
}

// finish brings sums that were kept aside to C, and does the epilogue while they are in the cache. rows is memory for
// three rows.
func (t *blockedTask) finish(block []float32, ld int, rows []float32, rlo, rhi, clo, chi int) {
	aside, final := len(block) > 0, t.toC == t.chunks
	if !aside && t.bias.none() && t.gelu.none() {
		return
	}
	n := chi - clo
	b := bands[float32]{ops: t.ops, memory: rows, n: ld}
	var bias *float32
	if final && !t.bias.none() {
		bias = first(t.bias.read(&b, 0, clo, chi))
	}
	for r := rlo; r < rhi; r++ {
		at := r*t.ldc + clo
		// The sums of a row are where C is wide, or aside until they are rounded.
		sums := t.c.room(&b, 1, at, at+n)
		if t.c.narrow != nil {
			sums = block[(r-rlo)*ld:][:n]
			if t.accumulate {
				t.ops.add(first(sums), first(t.c.read(&b, 1, at, at+n)), first(sums), n)
			}
		} else if aside {
			s := block[(r-rlo)*ld:][:n]
			if t.accumulate || t.fromC > 0 {
				t.ops.add(first(sums), first(sums), first(s), n)
			} else {
				copy(sums, s)
			}
		}
		if bias != nil {
			t.ops.add(first(sums), first(sums), bias, n)
		}
		t.c.put(t.ops, sums, at)
		if final && !t.gelu.none() {
			// Of what C holds, so that whoever makes it again from C gets the same.
			to := r*t.n + clo
			y := t.gelu.room(&b, 2, to, to+n)
			t.ops.gelu(first(y), first(t.c.read(&b, 1, at, at+n)), n)
			t.gelu.put(t.ops, y, to)
		}
	}
}
