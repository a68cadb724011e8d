package optim

import (
	"fmt"
	"math"

	"github.com/troupe-train/troupe/plan"
)

// NonFinite is the error of a gradient with an element that is infinite or not a number.
type NonFinite struct {
	// Parameter is the first such one in canonical order; Elements are those of its block that has it.
	Parameter string
	Elements  plan.Range
	// Shard is the actor that owns it.
	Shard plan.ActorID
}

func (e *NonFinite) Error() string {
	return fmt.Sprintf("the gradient of %s is not finite in elements %d..%d", e.Parameter, e.Elements.Lo, e.Elements.Hi-1)
}

// GlobalNorm is the Euclidean norm of the gradient of all parameters. norms are the sums of squares
// that each shard that owns something has sent: of the blocks of its parts, part by part. They are
// summed bucket by bucket and block by block, whoever owns them. The error is a *NonFinite for a
// gradient that is not finite.
func GlobalNorm(p *plan.Plan, norms map[plan.ActorID][]float64) (float64, error) {
	used := map[plan.ActorID]int{}
	var sum float64
	for i, b := range p.Buckets {
		var id plan.ActorID
		var n []float64
		piece, at := -1, 0
		for _, block := range b.Blocks {
			if piece < 0 || block.Hi > b.Pieces[piece].Hi {
				if piece >= 0 {
					used[id] = at
				}
				piece = ownerOf(b, block)
				id = plan.ShardID(b.Rank, piece)
				n, at = norms[id], used[id]
			}
			if at >= len(n) {
				return 0, fmt.Errorf("%s has sent the norms of %d blocks; bucket %d needs more", id, len(n), i)
			}
			if math.IsNaN(n[at]) || math.IsInf(n[at], 0) {
				return 0, nonFinite(p, i, block, id)
			}
			sum += n[at]
			at++
		}
		if piece >= 0 {
			used[id] = at
		}
	}
	for id, n := range norms {
		if len(n) != used[id] {
			return 0, fmt.Errorf("%s has sent the norms of %d blocks and owns %d", id, len(n), used[id])
		}
	}
	return math.Sqrt(sum), nil
}

// ownerOf is the piece of a bucket that a block lies in.
func ownerOf(b plan.BucketPlan, block plan.Range) int {
	for j, piece := range b.Pieces {
		if block.Lo >= piece.Lo && block.Hi <= piece.Hi {
			return j
		}
	}
	panic(fmt.Sprintf("optim: block %v lies in no piece of %v", block, b.Pieces))
}

func nonFinite(p *plan.Plan, bucket int, block plan.Range, shard plan.ActorID) error {
	b := p.Model.Buckets()[bucket]
	for i, q := range b.Params {
		if off := b.Offsets[i]; block.Lo >= off && block.Hi <= off+q.Len() {
			return &NonFinite{q.Name, plan.Range{Lo: block.Lo - off, Hi: block.Hi - off}, shard}
		}
	}
	panic(fmt.Sprintf("optim: block %v lies in no parameter of bucket %s", block, b.Name))
}

// ClipFactor is what a gradient of the given norm is multiplied by so that its norm is at most clip
// (Pascanu et al. 2013, algorithm 1). A clip of 0 is none.
func ClipFactor(norm, clip float64) float64 {
	if clip == 0 || norm <= clip {
		return 1
	}
	return clip / norm
}
