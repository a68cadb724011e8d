package plan

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// association writes the tree over [lo, hi) down as it is defined, without the functions under test.
func association(lo, hi int) string {
	if hi-lo == 1 {
		return fmt.Sprint(lo)
	}
	mid := lo + (hi-lo+1)/2
	return "(" + association(lo, mid) + "+" + association(mid, hi) + ")"
}

func TestTreeBySmallCases(t *testing.T) {
	if got := association(0, 5); got != "(((0+1)+2)+(3+4))" {
		t.Fatal(got)
	}
	for _, c := range []struct {
		share Range
		n     int
		want  string
	}{
		{Range{0, 8}, 8, "[{0 8}]"},
		{Range{0, 4}, 8, "[{0 4}]"},
		{Range{2, 4}, 8, "[{2 4}]"},
		{Range{1, 7}, 8, "[{1 2} {2 4} {4 6} {6 7}]"},
		{Range{0, 2}, 3, "[{0 2}]"},
		{Range{1, 3}, 3, "[{1 2} {2 3}]"},
		{Range{3, 3}, 8, "[]"},
		{Range{0, 1}, 1, "[{0 1}]"},
	} {
		if got := fmt.Sprint(Cover(c.share, c.n)); got != c.want {
			t.Errorf("Cover(%v, %d) = %s, want %s", c.share, c.n, got, c.want)
		}
	}
}

// TestCover: for every way to cut micro-batches into contiguous shares, the covers are exact and
// maximal, and merging them gives the association of the whole tree.
func TestCover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 70).Draw(t, "n")
		cuts := []int{0}
		for cuts[len(cuts)-1] < n {
			cuts = append(cuts, rapid.IntRange(cuts[len(cuts)-1]+1, n).Draw(t, "cut"))
		}
		var nodes []Range
		var parts []string
		for i := range cuts[1:] {
			share := Range{cuts[i], cuts[i+1]}
			at := share.Lo
			for _, node := range Cover(share, n) {
				if node.Lo != at || !IsNode(node, n) {
					t.Fatalf("cover of %v in %d: %v does not follow %d, or is no node", share, n, node, at)
				}
				if p, ok := Parent(node, n); ok && p.Lo >= share.Lo && p.Hi <= share.Hi {
					t.Fatalf("cover of %v in %d: %v is not maximal, %v fits", share, n, node, p)
				}
				at = node.Hi
				nodes = append(nodes, node)
				parts = append(parts, association(node.Lo, node.Hi))
			}
			if at != share.Hi {
				t.Fatalf("cover of %v in %d ends at %d", share, n, at)
			}
		}
		sums, err := Merge(nodes, n)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sums {
			if s.Into >= s.From || parts[s.From] == "" {
				t.Fatalf("sum %v takes a value twice or swaps its operands", s)
			}
			parts[s.Into] = "(" + parts[s.Into] + "+" + parts[s.From] + ")"
			parts[s.From] = ""
		}
		if want := association(0, n); parts[0] != want || len(sums) != len(nodes)-1 {
			t.Fatalf("merged %v to %s, want %s", nodes, parts[0], want)
		}
	})
}

func TestMergeRefuses(t *testing.T) {
	for _, nodes := range [][]Range{nil, {{0, 2}}, {{0, 2}, {3, 4}}, {{0, 2}, {2, 3}, {2, 4}}, {{0, 3}, {3, 4}}, {{0, 4}, {0, 4}}, {{1, 2}, {2, 4}}, {{0, 0}, {0, 4}}, {{0, 8}}} {
		if sums, err := Merge(nodes, 4); err == nil {
			t.Errorf("Merge(%v, 4) = %v, want an error", nodes, sums)
		}
	}
}

// TestNodes compares IsNode, Children and Parent with the list of all nodes.
func TestNodes(t *testing.T) {
	for n := 1; n <= 33; n++ {
		all := map[Range]bool{}
		parent := map[Range]Range{}
		var walk func(Range)
		walk = func(r Range) {
			all[r] = true
			if r.Len() > 1 {
				lower, upper := Children(r)
				parent[lower], parent[upper] = r, r
				walk(lower)
				walk(upper)
			}
		}
		walk(Range{0, n})
		if len(all) != 2*n-1 {
			t.Fatalf("the tree over %d has %d nodes", n, len(all))
		}
		for lo := -1; lo <= n; lo++ {
			for hi := lo - 1; hi <= n+1; hi++ {
				r := Range{lo, hi}
				if IsNode(r, n) != all[r] {
					t.Fatalf("IsNode(%v, %d) = %v", r, n, IsNode(r, n))
				}
				if !all[r] {
					continue
				}
				got, ok := Parent(r, n)
				if want, has := parent[r]; ok != has || got != want {
					t.Fatalf("Parent(%v, %d) = %v, %v", r, n, got, ok)
				}
			}
		}
	}
}
