package plan

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestBalance(t *testing.T) {
	for _, c := range []struct {
		costs []float64
		ranks int
		want  string
	}{
		{[]float64{1, 1, 1, 1, 1, 1, 1}, 1, "[{0 7}]"},
		{[]float64{1, 1, 1, 1, 1, 1, 1}, 2, "[{0 3} {3 7}]"},
		{[]float64{1, 1, 1, 1, 1, 1, 1}, 3, "[{0 2} {2 4} {4 7}]"},
		{[]float64{1, 1, 1}, 5, "[{0 1} {1 2} {2 3} {3 3} {3 3}]"},
		{[]float64{0, 4, 4, 4, 4, 8}, 3, "[{0 3} {3 5} {5 6}]"},
		{[]float64{0, 0, 0, 0}, 3, "[{0 1} {1 2} {2 4}]"},
		{[]float64{100, 1, 1}, 3, "[{0 1} {1 2} {2 3}]"},
		// The maximum is 100 in any case; the rest is balanced too.
		{[]float64{100, 3, 3, 3, 3}, 3, "[{0 1} {1 3} {3 5}]"},
	} {
		if got := fmt.Sprint(Balance(c.costs, c.ranks)); got != c.want {
			t.Errorf("Balance(%v, %d) = %s, want %s", c.costs, c.ranks, got, c.want)
		}
	}
}

// TestBalanceIsBest compares with all cuts.
func TestBalanceIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		costs := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 9), func(n int) float64 { return float64(n) }), 1, 9).Draw(t, "costs")
		ranks := rapid.IntRange(1, 11).Draw(t, "ranks")
		stages := Balance(costs, ranks)
		at, most := 0, 0.0
		for r, s := range stages {
			if s.Lo != at || s.Hi < s.Lo || s.Len() == 0 && ranks <= len(costs) {
				t.Fatalf("ranks %v: rank %d is empty or does not follow", stages, r)
			}
			most = max(most, total(costs[s.Lo:s.Hi]))
			at = s.Hi
		}
		if at != len(costs) || len(stages) != ranks {
			t.Fatalf("ranks %v do not hold %d layers", stages, len(costs))
		}
		if want := bestMaximum(costs, min(ranks, len(costs))); most != want {
			t.Fatalf("the largest rank of %v has %g, the best cut %g", stages, most, want)
		}
	})
}

func bestMaximum(costs []float64, ranks int) float64 {
	if ranks == 1 {
		return total(costs)
	}
	best := math.Inf(1)
	for i := 1; i <= len(costs)-ranks+1; i++ {
		best = min(best, max(total(costs[:i]), bestMaximum(costs[i:], ranks-1)))
	}
	return best
}

func total(costs []float64) float64 {
	sum := 0.0
	for _, c := range costs {
		sum += c
	}
	return sum
}

func TestStagesByHand(t *testing.T) {
	j := toyJob(4, 1, 3, 1, "1f1b")
	j.Layout.Stages = []int{0, 7, 0}
	pl, err := New(j, toy(7), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(pl.Stages); got != "[{0 0} {0 7} {7 7}]" {
		t.Fatal(got)
	}
	for _, c := range []struct {
		stages []int
		want   string
	}{
		{[]int{2, 2, 2}, "layout.stages: [2 2 2] sum to 6 layers, but the model has 7, embedding and head included; a sum of 7 is legal, for example with a last rank of 3"},
		{[]int{9, 0, 0}, "layout.stages: [9 0 0] sum to 9 layers, but the model has 7, embedding and head included; a sum of 7 is legal"},
		{[]int{7}, "layout.stages: has 1 ranks, but layout.pipeline is 3"},
	} {
		j.Layout.Stages = c.stages
		_, err := New(j, toy(7), Options{})
		wantLine(t, err, c.want)
	}
}

// TestPieces: pieces are cut between blocks, as near to even as blocks allow.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var blocks []Range
		n := 0
		for range rapid.IntRange(1, 6).Draw(t, "params") {
			size := rapid.IntRange(1, 5000).Draw(t, "size")
			for lo := 0; lo < size; lo += NormBlock {
				blocks = append(blocks, Range{n + lo, n + min(lo+NormBlock, size)})
			}
			n += size
		}
		parts := rapid.IntRange(1, 12).Draw(t, "parts")
		at := 0
		for j, piece := range cutAtBlocks(blocks, n, parts) {
			if piece.Lo != at || piece.Hi < piece.Lo {
				t.Fatalf("piece %d is %v after %d", j, piece, at)
			}
			at = piece.Hi
			// No block boundary is nearer to the even cut.
			even := float64(j+1) * float64(n) / float64(parts)
			off, cut := math.Abs(float64(at)-even), at == n
			for _, b := range blocks {
				cut = cut || b.Lo == at
				if math.Abs(float64(b.Lo)-even) < off-1e-6 || math.Abs(float64(n)-even) < off-1e-6 {
					t.Fatalf("piece %d of %d ends at %d; block boundary %d is nearer to %g", j, parts, at, b.Lo, even)
				}
			}
			if !cut {
				t.Fatalf("piece %d ends at %d, inside a block", j, at)
			}
		}
		if at != n {
			t.Fatalf("pieces end at %d of %d", at, n)
		}
	})
}

func TestMicroBatches(t *testing.T) {
	got := fmt.Sprint(cut(10, 4, evenShares(3, 2)), cut(4, 4, evenShares(1, 3)), cut(0, 4, evenShares(0, 2)))
	if want := "[{0 4 0 0} {1 4 4 0} {2 2 8 1}] [{0 4 0 0}] []"; got != want {
		t.Fatalf("cut: %s, want %s", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		rows, size, ranks := rapid.IntRange(0, 99).Draw(t, "rows"), rapid.IntRange(1, 9).Draw(t, "size"), rapid.IntRange(1, 9).Draw(t, "ranks")
		batches := cut(rows, size, evenShares(ceil(rows, size), ranks))
		if Rows(batches) != rows || len(batches) != (rows+size-1)/size {
			t.Fatalf("%v", batches)
		}
		at, before := 0, len(batches)
		for d := range ranks {
			s := Share(batches, d)
			if s.Len() > before || s.Len() < len(batches)/ranks || s.Len() > 0 && s.Lo != at {
				t.Fatalf("share %d of %v is %v", d, batches, s)
			}
			at, before = max(at, s.Hi), s.Len()
		}
		if at != len(batches) {
			t.Fatalf("shares end at %d of %d", at, len(batches))
		}
	})
}

func TestPlace(t *testing.T) {
	nodes := func(pipeline, data, nodes int) string {
		pl, err := New(toyJob(8, 1, pipeline, data, "1f1b"), toy(8), Options{Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		s := ""
		for _, a := range pl.Actors {
			s += fmt.Sprint(a.Node)
		}
		return s
	}
	for _, c := range []struct {
		pipeline, data, nodes int
		want                  string
	}{
		{2, 1, 0, "0" + "00" + "00" + "00"},
		{2, 1, 1, "0" + "11" + "11" + "11"},
		{2, 1, 2, "0" + "12" + "12" + "21"},
		{4, 1, 2, "0" + "1122" + "1122" + "2211"},
		{2, 2, 2, "0" + "1122" + "1122" + "2211"},
		{1, 4, 4, "0" + "1234" + "1234" + "2341"},
		{3, 1, 2, "0" + "112" + "112" + "221"},
		{1, 1, 4, "0" + "1" + "1" + "2"},
	} {
		if got := nodes(c.pipeline, c.data, c.nodes); got != c.want {
			t.Errorf("pipeline %d, data %d on %d nodes: %s, want %s", c.pipeline, c.data, c.nodes, got, c.want)
		}
	}
}
