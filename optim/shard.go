package optim

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// shard is what a shard owns: parts of buckets, by bucket.
type shard struct {
	parts []part
	// elements and blocks are those of all parts.
	elements, blocks int
}

// part is the owned piece of a bucket. It has weights between Init and the end.
type part struct {
	plan.Part
	runs    []run
	weights device.Slice
	moments []device.Slice
	next    next
}

// run is a range of elements of a part, counted from its start, that belong to one parameter.
type run struct {
	plan.Range
	param int // index in the bucket
	from  int // the element of the parameter at Lo
	block int // index of the first block among those of the part
}

func newShard(p *plan.Plan, rank, piece int) shard {
	var s shard
	for _, owned := range p.Parts(rank, piece) {
		q := part{Part: owned}
		b := p.Model.Buckets()[owned.Bucket]
		blocks := 0
		for i, off := range b.Offsets {
			lo := max(off, owned.Range.Lo)
			hi := min(off+b.Params[i].Len(), owned.Range.Hi)
			if lo >= hi {
				continue
			}
			if (lo-off)%plan.NormBlock != 0 {
				panic(fmt.Sprintf("optim: bucket %s is cut at element %d of %s, which is no multiple of %d", b.Name, lo-off, b.Params[i].Name, plan.NormBlock))
			}
			q.runs = append(q.runs, run{plan.Range{Lo: lo - owned.Range.Lo, Hi: hi - owned.Range.Lo}, i, lo - off, blocks})
			blocks += blocksOf(hi - lo)
		}
		if blocks != len(owned.Blocks) {
			panic(fmt.Sprintf("optim: elements %v of bucket %s are %d blocks and not %d", owned.Range, b.Name, blocks, len(owned.Blocks)))
		}
		s.parts = append(s.parts, q)
		s.elements += owned.Range.Len()
		s.blocks += blocks
	}
	return s
}

func blocksOf(n int) int { return (n + plan.NormBlock - 1) / plan.NormBlock }

// part returns the owned part of a bucket.
func (s *shard) part(bucket int) (*part, error) {
	for i := range s.parts {
		if s.parts[i].Bucket == bucket {
			return &s.parts[i], nil
		}
	}
	return nil, fmt.Errorf("nothing of bucket %d belongs to this shard", bucket)
}
