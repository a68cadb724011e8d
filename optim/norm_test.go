package optim_test

import (
	"errors"
	"math"
	"testing"

	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
)

// squares are norms in which block i, counted over buckets, has the value of(i).
func squares(p *plan.Plan, of func(i int) float64) map[plan.ActorID][]float64 {
	norms := map[plan.ActorID][]float64{}
	i := 0
	for _, b := range p.Buckets {
		for _, block := range b.Blocks {
			for j, piece := range b.Pieces {
				if block.Lo >= piece.Lo && block.Hi <= piece.Hi {
					id := plan.ShardID(b.Rank, j)
					norms[id] = append(norms[id], of(i))
				}
			}
			i++
		}
	}
	return norms
}

// TestGlobalNorm: the sum runs over blocks in canonical order, so that numbers whose sum depends on
// the order give the same bits at any number of shards. Tied parameters are there once.
func TestGlobalNorm(t *testing.T) {
	ill := func(i int) float64 { return []float64{1, 1e16, 3, 7e15, 5}[i%5] / 3 }
	p := ledgerPlan(t, 1, 1, "adamw")
	blocks := 0
	for _, b := range p.Buckets {
		blocks += len(b.Blocks)
	}
	// tied 1250, big 3000, gain 7, exact 2048, bias 3: 2 + 3 + 1 + 2 + 1 blocks.
	if blocks != 9 {
		t.Fatalf("%d blocks", blocks)
	}
	var sum float64
	for i := range blocks {
		sum += ill(i)
	}
	for _, layout := range [][2]int{{1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 2}, {4, 3}} {
		p := ledgerPlan(t, layout[0], layout[1], "adamw")
		got, err := optim.GlobalNorm(p, squares(p, ill))
		if err != nil {
			t.Fatal(err)
		}
		if got != math.Sqrt(sum) {
			t.Errorf("pipeline %d, data %d: %v, want %v", layout[0], layout[1], got, math.Sqrt(sum))
		}
	}
	ones, err := optim.GlobalNorm(p, squares(p, func(int) float64 { return 1 }))
	if err != nil || ones != 3 {
		t.Errorf("nine blocks of 1 give %v, %v", ones, err)
	}
}

// TestNonFinite: the first gradient that is not finite is found by name.
func TestNonFinite(t *testing.T) {
	p := ledgerPlan(t, 2, 2, "adamw")
	for _, c := range []struct {
		block  int
		value  float64
		name   string
		lo, hi int
	}{
		{1, math.NaN(), "tied", 1024, 1250},
		{2, math.Inf(1), "big", 0, 1024},
		{4, math.NaN(), "big", 2048, 3000},
		{5, math.NaN(), "gain", 0, 7},
		{7, math.NaN(), "exact", 1024, 2048},
		{8, math.Inf(1), "bias", 0, 3},
	} {
		_, err := optim.GlobalNorm(p, squares(p, func(i int) float64 {
			if i >= c.block {
				return c.value
			}
			return 1
		}))
		var bad *optim.NonFinite
		if !errors.As(err, &bad) {
			t.Errorf("block %d: error %v", c.block, err)
			continue
		}
		if bad.Parameter != c.name || bad.Elements != (plan.Range{Lo: c.lo, Hi: c.hi}) {
			t.Errorf("block %d: %v, want %s[%d:%d]", c.block, bad, c.name, c.lo, c.hi)
		}
	}
}

// TestNormsThatDoNotFit: a shard that sends too few or too many is an error.
func TestNormsThatDoNotFit(t *testing.T) {
	p := ledgerPlan(t, 1, 2, "adamw")
	id := plan.ShardID(0, 1)
	for name, change := range map[string]func([]float64) []float64{
		"too few":  func(n []float64) []float64 { return n[1:] },
		"too many": func(n []float64) []float64 { return append(n, 1) },
		"none":     func([]float64) []float64 { return nil },
	} {
		norms := squares(p, func(int) float64 { return 1 })
		norms[id] = change(norms[id])
		if _, err := optim.GlobalNorm(p, norms); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestClipFactor(t *testing.T) {
	for _, c := range []struct{ norm, clip, want float64 }{
		{5, 0, 1}, {5, 10, 1}, {5, 5, 1}, {5, 1, 0.2}, {0, 1, 1},
	} {
		if got := optim.ClipFactor(c.norm, c.clip); got != c.want {
			t.Errorf("norm %v, clip %v: %v, want %v", c.norm, c.clip, got, c.want)
		}
	}
}
