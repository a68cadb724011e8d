package plan

import "fmt"

// The tree over micro-batches [0, n) is the one order in which gradients are summed. A node
// [lo, hi) of one micro-batch is a leaf; any other is the sum of its two children, which meet at
// split(lo, hi). The tree depends on n alone, so no layout changes the association of the sum.

// split is where the children of node r meet: the lower one is the bigger one.
func split(r Range) int { return r.Lo + (r.Len()+1)/2 }

// Children of a node that is no leaf.
func Children(r Range) (lower, upper Range) {
	if r.Len() < 2 {
		panic(fmt.Sprintf("plan: node [%d,%d) has no children", r.Lo, r.Hi))
	}
	mid := split(r)
	return Range{r.Lo, mid}, Range{mid, r.Hi}
}

// IsNode reports whether r is a node of the tree over n micro-batches.
func IsNode(r Range, n int) bool {
	at := Range{0, n}
	for r.Lo >= at.Lo && r.Hi <= at.Hi && r.Len() > 0 {
		if r == at {
			return true
		}
		if at.Len() < 2 {
			return false
		}
		lower, upper := Children(at)
		if at = lower; r.Lo >= lower.Hi {
			at = upper
		}
	}
	return false
}

// Parent returns the parent of a node; the root has none.
func Parent(r Range, n int) (Range, bool) {
	at := Range{0, n}
	if !IsNode(r, n) {
		panic(fmt.Sprintf("plan: [%d,%d) is no node of the tree over %d micro-batches", r.Lo, r.Hi, n))
	}
	if r == at {
		return Range{}, false
	}
	for {
		lower, upper := Children(at)
		if r == lower || r == upper {
			return at, true
		}
		if at = lower; r.Lo >= lower.Hi {
			at = upper
		}
	}
}

// Cover returns the maximal nodes of the tree over n micro-batches that lie inside share, from low
// to high. They cover share exactly, in at most 2 log2(n) nodes.
func Cover(share Range, n int) []Range {
	var nodes []Range
	var walk func(Range)
	walk = func(at Range) {
		switch {
		case share.Lo >= at.Hi || share.Hi <= at.Lo:
		case share.Lo <= at.Lo && at.Hi <= share.Hi:
			nodes = append(nodes, at)
		default:
			lower, upper := Children(at)
			walk(lower)
			walk(upper)
		}
	}
	if n > 0 && share.Len() > 0 {
		walk(Range{0, n})
	}
	return nodes
}

// Sum is one addition of Merge: the partial sum at From is added to the one at Into, as its right operand.
type Sum struct{ Into, From int }

// Merge returns the additions that finish the tree over n micro-batches from nodes, which must
// cover [0, n) from low to high without gap or overlap. Indices count in nodes; after the last
// addition the sum of everything is at 0. A sum is (Into + From) with Into the lower node, in the
// association of the tree, whatever the nodes are.
func Merge(nodes []Range, n int) ([]Sum, error) {
	var sums []Sum
	next := 0
	var walk func(Range) (int, error)
	walk = func(at Range) (int, error) {
		if next >= len(nodes) || nodes[next].Lo != at.Lo || nodes[next].Hi > at.Hi {
			return 0, fmt.Errorf("plan: nodes %v do not cover the %d micro-batches: no node starts %v", nodes, n, at)
		}
		if nodes[next] == at {
			next++
			return next - 1, nil
		}
		if at.Len() < 2 {
			return 0, fmt.Errorf("plan: %v is no node of the tree over %d micro-batches", nodes[next], n)
		}
		lower, upper := Children(at)
		into, err := walk(lower)
		if err != nil {
			return 0, err
		}
		from, err := walk(upper)
		if err != nil {
			return 0, err
		}
		sums = append(sums, Sum{into, from})
		return into, nil
	}
	if _, err := walk(Range{0, n}); err != nil {
		return nil, err
	}
	if next != len(nodes) {
		return nil, fmt.Errorf("plan: nodes %v do not cover the %d micro-batches: %d left over", nodes, n, len(nodes)-next)
	}
	return sums, nil
}
