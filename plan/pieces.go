package plan

import (
	"sort"

	"github.com/troupe-train/troupe/model"
)

// pieces cuts each bucket into blocks, and the blocks over the shards of its owner rank.
func pieces(m *model.Model, stages []Range, shards int) []BucketPlan {
	plans := make([]BucketPlan, len(m.Buckets()))
	for i, b := range m.Buckets() {
		bp := BucketPlan{Rank: rankOf(stages, b.Uses[0])}
		for j, p := range b.Params {
			end := b.Offsets[j] + p.Len()
			for lo := b.Offsets[j]; lo < end; lo += NormBlock {
				bp.Blocks = append(bp.Blocks, Range{lo, min(lo+NormBlock, end)})
			}
		}
		bp.Pieces = cutAtBlocks(bp.Blocks, b.Len, shards)
		plans[i] = bp
	}
	return plans
}

// cutAtBlocks cuts [0, n) into parts ranges, each cut at the block boundary nearest to the even
// one, the lower of two that are as near.
func cutAtBlocks(blocks []Range, n, parts int) []Range {
	out := make([]Range, parts)
	lo, at := 0, 0
	for j := range out {
		hi := n
		if j < parts-1 {
			// The boundary nearest to (j+1) n / parts, in whole numbers: distances are times parts.
			target := int64(j+1) * int64(n)
			for at < len(blocks) && distance(int64(blocks[at].Hi)*int64(parts), target) < distance(int64(blocks[at].Lo)*int64(parts), target) {
				at++
			}
			hi = n
			if at < len(blocks) {
				hi = blocks[at].Lo
			}
		}
		out[j] = Range{lo, hi}
		lo = hi
	}
	return out
}

func distance(a, b int64) int64 {
	if a > b {
		return a - b
	}
	return b - a
}

// rankOf is the pipeline rank that holds a layer.
func rankOf(stages []Range, layer int) int {
	for r, s := range stages {
		if layer >= s.Lo && layer < s.Hi {
			return r
		}
	}
	return -1
}

// Part is a shard's part of a bucket: its elements, and the blocks of the bucket that they are.
type Part struct {
	Bucket int
	Range  Range
	Blocks []Range
}

// Parts are the parts of shard (p, d) that are not empty, by bucket. Reduced, Norm, Parameters and
// State of a shard follow this order.
func (pl *Plan) Parts(p, d int) []Part {
	var parts []Part
	for i, b := range pl.Buckets {
		if b.Rank != p || b.Pieces[d].Len() == 0 {
			continue
		}
		r := b.Pieces[d]
		lo := sort.Search(len(b.Blocks), func(k int) bool { return b.Blocks[k].Lo >= r.Lo })
		hi := sort.Search(len(b.Blocks), func(k int) bool { return b.Blocks[k].Lo >= r.Hi })
		parts = append(parts, Part{Bucket: i, Range: r, Blocks: b.Blocks[lo:hi:hi]})
	}
	return parts
}

// Part is the range of the value in Reads[0] that a Send sends: that of a shard's piece for a
// gradient. whole is true when all of it goes.
func (pl *Plan) Part(op *Op) (part Range, whole bool) {
	if op.As.Kind != Gradient || op.As.Piece < 0 || op.Reads[0].Piece >= 0 {
		return Range{}, true
	}
	return pl.Buckets[op.As.Index].Pieces[op.As.Piece], false
}
