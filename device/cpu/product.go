package cpu

// product is a kernel of the matrix product: rows x width sums in registers,
//
//	c[i,j] = (or += where add is not 0) sum over k of A(i,k) b[k,j],
//
// one fused multiply-add after the other, k ascending. A(i,k) is a[i lda + k], or a[k lda + i] in
// the form by columns. All strides are bytes.
type product func(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int, add int)

// packer copies rows rows of width floats, lds bytes apart, one behind the other.
type packer func(dst, src *float32, rows, lds int)

// productTable is the products of a level.
type productTable struct {
	rows   []int          // of the kernels, largest first, down to 1
	widths []int          // of the kernels in sixteens, largest first, down to 1
	kernel [2][][]product // [A by columns][rows][width]
	pack   [4]packer      // by width in sixteens
	// pair is dst[i,j] = (src[2i,j], src[2i+1,j]) for rows i and 16 n columns j: see blockedTask.
	pair func(dst *float32, ldd int, src *BFloat16, lds, rows, n int)
	// transpose is dst[j,i] = src[i,j] for 8 rows i and 8*blocks columns j.
	transpose func(dst *float32, ldd int, src *float32, lds, blocks int)

	pairs *productTable // the products of bfloat16; nil in that table itself
}

// widthIndex is the place of a width in the table: widths go down by one.
func (t *productTable) widthIndex(width int) int { return t.widths[0] - width }
