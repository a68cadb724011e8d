package cpu

import "unsafe"

// multiply is sums[i][j] = sum over k, ascending, of a[k,i] b[k,j] for packed panels of 4.
func multiply[T Float](sums *[panelM][panelN]T, a, b []T) {
	pa := unsafe.Slice((*[panelM]T)(unsafe.Pointer(unsafe.SliceData(a))), len(a)/panelM)
	pb := unsafe.Slice((*[panelN]T)(unsafe.Pointer(unsafe.SliceData(b))), len(pa))
	// Two halves: the eight sums of a half and its operands fit into the sixteen registers of SSE.
	for h := 0; h < panelM; h += 2 {
		var s00, s01, s02, s03, s10, s11, s12, s13 T
		for k := range pa {
			b := &pb[k]
			a0, a1 := pa[k][h], pa[k][h+1]
			b0, b1, b2, b3 := b[0], b[1], b[2], b[3]
			s00 += a0 * b0
			s01 += a0 * b1
			s02 += a0 * b2
			s03 += a0 * b3
			s10 += a1 * b0
			s11 += a1 * b1
			s12 += a1 * b2
			s13 += a1 * b3
		}
		sums[h] = [panelN]T{s00, s01, s02, s03}
		sums[h+1] = [panelN]T{s10, s11, s12, s13}
	}
}
