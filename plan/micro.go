package plan

// cut makes the micro-batches of a batch of rows sequences: ceil(rows/size) of them, all of size
// rows but the last, which may be shorter. Data rank d gets the next shares[d] of them; the shares must add up.
func cut(rows, size int, shares []int) []MicroBatch {
	batches := make([]MicroBatch, 0, ceil(rows, size))
	for d, share := range shares {
		for range share {
			i := len(batches)
			batches = append(batches, MicroBatch{Index: i, Rows: min(size, rows-i*size), Sample: i * size, Data: d})
		}
	}
	return batches
}

// evenShares are shares of n micro-batches for ranks data ranks, as even as possible, the bigger ones first; with fewer
// micro-batches than ranks the last ranks get none.
func evenShares(n, ranks int) []int {
	shares := make([]int, ranks)
	for d := range shares {
		shares[d] = evenly(n, d, ranks).Len()
	}
	return shares
}

// evenly is part i of [0, n) cut into parts ranges, the bigger ones first.
func evenly(n, i, parts int) Range {
	q, r := n/parts, n%parts
	lo := i*q + min(i, r)
	hi := lo + q
	if i < r {
		hi++
	}
	return Range{lo, hi}
}

// span iterates over the integers of r.
func span(r Range) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := r.Lo; i < r.Hi; i++ {
			if !yield(i) {
				return
			}
		}
	}
}

// Share is the micro-batches of a batch that data rank d runs. They are contiguous.
func Share(batches []MicroBatch, d int) Range {
	r := Range{}
	for _, b := range batches {
		if b.Data != d {
			continue
		}
		if r.Len() == 0 {
			r.Lo = b.Index
		}
		r.Hi = b.Index + 1
	}
	return r
}

// Rows is the number of sequences of a batch.
func Rows(batches []MicroBatch) int {
	n := 0
	for _, b := range batches {
		n += b.Rows
	}
	return n
}
