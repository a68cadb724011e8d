package cpu

// The blocked product, for float32 with vector kernels (Goto and van de Geijn 2008). K is cut into
// equal chunks of at most maxChunk; the columns of op(B) into panels. Panels are packed, shared by
// all workers, where that pays. A tile of C is some rows by some panels, whose operands stay in the
// second-level cache; a kernel makes up to 8 x 48 sums of it at a time.
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

	chunks, chunk int    // how many chunks, and how long
	pack          bool   // B is packed
	panels        panels // of this pass
	columns       int    // columns of this pass, rounded up to 16
	fromC, toC    int    // chunks of this pass: all, or one
	rowsPer       int    // rows of a tile
	panelsPer     int    // panels of a tile
}

func (t *blockedTask) run(p *pool) {
	t.chunks = max(1, tilesOf(t.k, maxChunk))
	t.chunk = tilesOf(t.k, t.chunks)
	t.pack = t.transB || t.m > fewRows || t.n%16 != 0
	columns, chunks := t.n, t.chunks
	if t.pack {
		columns = passElements / max(1, t.k) / 48 * 48
		if columns < passColumns && !t.accumulate {
			columns, chunks = passElements/t.chunk/48*48, 1
		}
	}
	columns = max(48, columns)
	for t.first = 0; t.first < t.n; t.first = t.last {
		t.last = min(t.first+columns, t.n)
		t.panels = panelsOf(t.last-t.first, t.table.widths)
		t.columns = tilesOf(t.last-t.first, 16) * 16
		t.cut(len(p.workers))
		for t.fromC = 0; t.fromC < t.chunks; t.fromC = t.toC {
			t.toC = t.fromC + chunks
			if t.pack && t.k > 0 {
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
	rows := t.table.rows[0]
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

	// Sums that are not yet final, and panels that reach over the edge, do not go to C.
	aside := t.accumulate && t.chunks > 1 || chi%16 != 0
	ld := tilesOf(chi-clo, 16) * 16
	var block []float32
	c, ldc := t.c[rlo*t.ldc+t.first+clo:], t.ldc
	if aside {
		block = scratch[float32](w, (rhi-rlo)*ld)
		c, ldc = block, ld
	}
	for chunk := t.fromC; chunk < t.toC; chunk++ {
		klo, khi := span(chunk, t.k, t.chunk)
		if khi <= klo {
			continue
		}
		add := 0
		if chunk > t.fromC || !aside && (chunk > 0 || t.accumulate) {
			add = 1
		}
		t.multiply(c, ldc, rlo, rhi, klo, khi, plo, phi, clo, add)
	}
	if t.k == 0 && (aside || !t.accumulate) {
		for r := range rhi - rlo {
			clear(c[r*ldc : r*ldc+chi-clo])
		}
	}
	t.finish(block, ld, rlo, rhi, t.first+clo, t.first+chi)
}

// multiply adds (or sets) the chunk [klo, khi) of rows [rlo, rhi) and panels [plo, phi) to the
// block c, whose first column is column clo of the pass.
//
// A is read where it lies: a kernel touches 8 rows of it, or 32 bytes of each of its stored rows,
// which then stay in the first-level cache for all panels.
func (t *blockedTask) multiply(c []float32, ldc, rlo, rhi, klo, khi, plo, phi, clo, add int) {
	kc := khi - klo
	byColumns := 0
	if t.transA {
		byColumns = 1
	}
	for p := plo; p < phi; p++ {
		column, width := t.panels.at(p)
		var b *float32
		ldb := 4 * t.ldb
		if t.pack {
			b, ldb = first(t.packedPanel(column, width, klo, khi)), 64*width
		} else {
			b = &t.b[klo*t.ldb+t.first+column]
		}
		kernels := t.table.kernel[byColumns]
		wi := t.table.widthIndex(width)
		r := rlo
		for ri, rows := range t.table.rows {
			kernel := kernels[ri][wi]
			for ; r+rows <= rhi; r += rows {
				a := r*t.lda + klo
				if t.transA {
					a = klo*t.lda + r
				}
				kernel(kc, &t.a[a], 4*t.lda, b, ldb, &c[(r-rlo)*ldc+column-clo], 4*ldc, add)
			}
		}
	}
}

// finish brings sums that were kept aside to C, and does the epilogue while they are in the cache.
func (t *blockedTask) finish(block []float32, ld, rlo, rhi, clo, chi int) {
	aside, final := block != nil, t.toC == t.chunks
	if !aside && t.bias == nil && t.gelu == nil {
		return
	}
	n := chi - clo
	for r := rlo; r < rhi; r++ {
		c := first(t.c[r*t.ldc+clo:][:n])
		if aside {
			s := block[(r-rlo)*ld:][:n]
			if t.accumulate || t.fromC > 0 {
				t.ops.add(c, c, first(s), n)
			} else {
				copy(t.c[r*t.ldc+clo:], s)
			}
		}
		if final && t.bias != nil {
			t.ops.add(c, c, first(t.bias[clo:chi]), n)
		}
		if final && t.gelu != nil {
			t.ops.gelu(first(t.gelu[r*t.n+clo:][:n]), c, n)
		}
	}
}
