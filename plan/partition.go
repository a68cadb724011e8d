package plan

import (
	"fmt"
	"math"
	"strings"

	"github.com/troupe-train/troupe/model"
)

// partition gives each pipeline rank a contiguous range of layers: as layout.stages says, or
// balanced by cost.
func partition(job *Job, m *model.Model) ([]Range, error) {
	layers := len(m.Layers)
	if given := job.Layout.Stages; len(given) > 0 {
		sum := 0
		for _, n := range given {
			sum += n
		}
		if sum != layers {
			last := given[len(given)-1] + layers - sum
			hint := ""
			if last >= 0 {
				hint = fmt.Sprintf(", for example with a last rank of %d", last)
			}
			return nil, bad("layout.stages", "%s sum to %d layers, but the model has %d, embedding and head included; a sum of %d is legal%s",
				strings.Join(strings.Fields(fmt.Sprint(given)), " "), sum, layers, layers, hint)
		}
		stages := make([]Range, len(given))
		lo := 0
		for r, n := range given {
			stages[r] = Range{lo, lo + n}
			lo += n
		}
		return stages, nil
	}
	rows := min(job.Train.MicroBatch, job.Train.Batch)
	costs := make([]float64, layers)
	for l := range costs {
		costs[l] = m.LayerCost(l, rows, m.Context).Total()
	}
	return Balance(costs, job.Layout.Pipeline), nil
}

// Balance cuts layers of the given costs into ranks contiguous ranges, none of them empty while
// there are enough layers; with more ranks than layers the last ranks are empty. The largest sum of a
// range is as small as possible, and among those cuts the sum of squares is (Pinar and Aykanat
// 2004 survey such chains-on-chains partitions; sizes here are small enough for the plain dynamic
// programme). Of equal cuts it takes the one with more in the later ranks, which hold fewer micro-batches.
// The same costs give the same cuts on every machine: no product is fused with a sum.
func Balance(costs []float64, ranks int) []Range {
	layers := len(costs)
	if ranks >= layers {
		stages := make([]Range, ranks)
		for r := range stages {
			stages[r] = Range{min(r, layers), min(r+1, layers)}
		}
		return stages
	}
	most := smallestMaximum(costs, ranks)
	// squares[r][i] is the least sum of squares of layers [0, i) over r ranks, no range above most.
	squares := make([][]float64, ranks+1)
	cuts := make([][]int, ranks+1)
	for r := range squares {
		squares[r] = make([]float64, layers+1)
		cuts[r] = make([]int, layers+1)
		for i := range squares[r] {
			squares[r][i] = math.Inf(1)
		}
	}
	squares[0][0] = 0
	for r := 1; r <= ranks; r++ {
		for i := r; i <= layers-(ranks-r); i++ {
			load := 0.0
			for j := i - 1; j >= r-1; j-- {
				if load += costs[j]; load > most {
					break
				}
				if s := squares[r-1][j] + float64(load*load); s <= squares[r][i] {
					squares[r][i], cuts[r][i] = s, j
				}
			}
		}
	}
	stages := make([]Range, ranks)
	for r, hi := ranks, layers; r > 0; r-- {
		stages[r-1] = Range{cuts[r][hi], hi}
		hi = cuts[r][hi]
	}
	return stages
}

// smallestMaximum is the largest sum of a range in the best cut into ranks non-empty ranges.
// Sums are made from the upper end of a range down, as in Balance, so that they compare equal.
func smallestMaximum(costs []float64, ranks int) float64 {
	layers := len(costs)
	before := make([]float64, layers+1)
	for i := range before {
		before[i] = math.Inf(1)
	}
	before[0] = 0
	for r := 1; r <= ranks; r++ {
		now := make([]float64, layers+1)
		for i := range now {
			now[i] = math.Inf(1)
		}
		for i := r; i <= layers-(ranks-r); i++ {
			load := 0.0
			for j := i - 1; j >= r-1; j-- {
				// The range only grows as j falls: past the best there is nothing better.
				if load += costs[j]; load > now[i] {
					break
				}
				now[i] = min(now[i], max(before[j], load))
			}
		}
		before = now
	}
	return before[layers]
}
