package cpu

import "math"

// Packing of op(B): a panel of columns lies in one piece, row after row of its width, as the product
// kernels read it; 0 beyond the last column. Panels of a chunk of K lie one behind the other.

// packRows is the rows of B that a tile packs, for all panels, packAtOnce of them side by side: so many
// streams of memory a processor can foresee.
const packRows, packAtOnce = 16, 8

// packTiles is the tiles of one chunk. Where B is stored as columns, a tile is a panel.
// Of bfloat16, a row is one of pairs.
func (t *blockedTask) packTiles() int {
	if t.transB {
		return t.panels.count()
	}
	return tilesOf(t.chunk, packRows)
}

// packedPanel is where chunk klo..khi of the panel that begins at column of the pass lies.
func (t *blockedTask) packedPanel(column, width, klo, khi int) []float32 {
	all := elements[float32](t.packed, t.columns*(t.toC-t.fromC)*t.chunk)
	return all[(klo-t.fromC*t.chunk)*t.columns+column*(khi-klo):][:16*width*(khi-klo)]
}

func (t *blockedTask) packTile(i, chunk int) {
	klo, khi := span(chunk, t.depth, t.chunk)
	switch {
	case khi <= klo:
	case t.transB:
		t.packColumns(i, klo, khi)
	default:
		lo, hi := span(i, khi-klo, packRows)
		for ; lo < hi; lo += packAtOnce {
			for p := range t.panels.count() {
				t.packRows(p, klo, khi, klo+lo, klo+min(lo+packAtOnce, hi))
			}
		}
	}
}

// packRows packs rows [lo, hi) of chunk [klo, khi) of a panel.
func (t *blockedTask) packRows(panel, klo, khi, lo, hi int) {
	if hi <= lo {
		return
	}
	column, width := t.panels.at(panel)
	wide := 16 * width
	dst := t.packedPanel(column, width, klo, khi)[(lo-klo)*wide:]
	column += t.first
	if t.pairs {
		whole := max(0, min(hi, t.k/2)-lo) // pairs of two
		if column+wide > t.last {
			whole = 0
		}
		if whole > 0 {
			t.product.pair(&dst[0], 4*wide, &t.b.narrow[2*lo*t.ldb+column], 2*t.ldb, whole, width)
		}
		have := min(wide, t.last-column)
		for k := lo + whole; k < hi; k++ {
			d := dst[(k-lo)*wide:][:wide]
			for j := range have {
				d[j] = t.pairOf(&t.b, 2*k, 2*k*t.ldb+column+j, t.ldb)
			}
			clear(d[have:])
		}
		return
	}
	if column+wide <= t.last {
		t.product.pack[width](&dst[0], &t.words.b[lo*t.ldb+column], hi-lo, 4*t.ldb)
		return
	}
	for k := range hi - lo {
		d := dst[k*wide : (k+1)*wide]
		clear(d[copy(d, t.words.b[(lo+k)*t.ldb+column:][:t.last-column]):])
	}
}

// pairOf is the pair of elements k and k+1 of K, which lie at and step elements behind it; 0 stands behind the last.
func (t *blockedTask) pairOf(o *operand[float32], k, at, step int) float32 {
	word := uint32(o.narrow[at])
	if k+1 < t.k {
		word |= uint32(o.narrow[at+step]) << 16
	}
	return math.Float32frombits(word)
}

// packedA is the elements of memory that packA needs for some rows of A and a chunk.
func (t *blockedTask) packedA(rows, chunk int) int {
	if t.transA {
		return tilesOf(rows, 16) * 16 * chunk
	}
	return rows * chunk
}

// packA writes the pairs [klo, khi) of rows [rlo, rhi) of A, and returns the words from row to row, or from pair to pair where A
// is stored as columns.
func (t *blockedTask) packA(dst []float32, rlo, rhi, klo, khi int) (ld int) {
	if !t.transA {
		ld = khi - klo
		for r := rlo; r < rhi; r++ {
			d := dst[(r-rlo)*ld:][:ld]
			for k := range d {
				d[k] = t.pairOf(&t.a, 2*(klo+k), r*t.lda+2*(klo+k), 1)
			}
		}
		return ld
	}
	// Sixteen rows at a time, also more than there are as long as A has them.
	ld = tilesOf(rhi-rlo, 16) * 16
	sixteens := min(tilesOf(rhi-rlo, 16), (t.m-rlo)/16)
	whole := max(0, min(khi, t.k/2)-klo)
	if sixteens == 0 {
		whole = 0
	}
	if whole > 0 {
		t.product.pair(&dst[0], 4*ld, &t.a.narrow[2*klo*t.lda+rlo], 2*t.lda, whole, sixteens)
	}
	for k := klo; k < khi; k++ {
		from := 16 * sixteens
		if k-klo >= whole {
			from = 0
		}
		for r := from; r < rhi-rlo; r++ {
			dst[(k-klo)*ld+r] = t.pairOf(&t.a, 2*k, 2*k*t.lda+rlo+r, t.lda)
		}
	}
	return ld
}

// packColumns packs chunk [klo, khi) of a panel whose columns are rows of what is stored.
func (t *blockedTask) packColumns(panel, klo, khi int) {
	column, width := t.panels.at(panel)
	kc, wide := khi-klo, 16*width
	dst := t.packedPanel(column, width, klo, khi)
	column += t.first
	have := min(wide, t.last-column)
	for j := 0; j < wide; j += 8 {
		done := 0
		if j+8 <= have && kc >= 8 && t.words.b != nil {
			done = kc / 8 * 8
			t.product.transpose(&dst[j], 4*wide, &t.words.b[(column+j)*t.words.ldb+klo], 4*t.words.ldb, kc/8)
		}
		for i := j; i < j+8; i++ {
			for k := done; k < kc; k++ {
				switch {
				case i >= have:
					dst[k*wide+i] = 0
				case t.pairs:
					dst[k*wide+i] = t.pairOf(&t.b, 2*(klo+k), (column+i)*t.ldb+2*(klo+k), 1)
				default:
					dst[k*wide+i] = t.words.b[(column+i)*t.ldb+klo+k]
				}
			}
		}
	}
}
