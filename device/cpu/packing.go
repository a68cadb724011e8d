package cpu

// Packing of op(B): a panel of columns lies in one piece, row after row of its width, as the product
// kernels read it; 0 beyond the last column. Panels of a chunk of K lie one behind the other.

// packRows is the rows of B that a tile packs, for all panels, packAtOnce of them side by side: so many
// streams of memory a processor can foresee.
const packRows, packAtOnce = 16, 8

// packTiles is the tiles of one chunk. Where B is stored as columns, a tile is a panel.
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
	klo, khi := span(chunk, t.k, t.chunk)
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
	if column+wide <= t.last {
		t.table.pack[width](&dst[0], &t.b[lo*t.ldb+column], hi-lo, 4*t.ldb)
		return
	}
	for k := range hi - lo {
		d := dst[k*wide : (k+1)*wide]
		clear(d[copy(d, t.b[(lo+k)*t.ldb+column:][:t.last-column]):])
	}
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
		if j+8 <= have {
			done = kc / 8 * 8
			t.table.transpose(&dst[j], 4*wide, &t.b[(column+j)*t.ldb+klo], 4*t.ldb, kc/8)
		}
		for i := j; i < j+8; i++ {
			for k := done; k < kc; k++ {
				if i < have {
					dst[k*wide+i] = t.b[(column+i)*t.ldb+klo+k]
				} else {
					dst[k*wide+i] = 0
				}
			}
		}
	}
}
