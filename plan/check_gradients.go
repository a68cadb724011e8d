package plan

import "slices"

// checkAdd proves that an Add makes a node of the tree of its two children, the lower one first.
func (c *checker) checkAdd(a ActorID, i int, op *Op) error {
	if len(op.Reads) != 2 || len(op.Writes) != 1 {
		return c.errorf(a, i, "an addition reads two values and writes one")
	}
	v := op.Writes[0]
	node := Range{v.Lo, v.Hi}
	if v.Kind != Gradient || v.Piece >= 0 || v.Index != op.Bucket || node.Len() < 2 || !IsNode(node, len(c.pl.Train)) {
		return c.errorf(a, i, "writes %s, which is no inner node of the tree over %d micro-batches of bucket %d", v, len(c.pl.Train), op.Bucket)
	}
	lower, upper := Children(node)
	want := []Value{gradient(v.Index, v.Use, lower, -1), gradient(v.Index, v.Use, upper, -1)}
	if !slices.Equal(op.Reads, want) {
		return c.errorf(a, i, "reads %s; the children of the node are %s", values(op.Reads), values(want))
	}
	return nil
}

// checkReduce proves that a Reduce reads, use by use, nodes that cover all micro-batches once.
func (c *checker) checkReduce(a ActorID, i int, op *Op, piece int) error {
	next, n := 0, len(c.pl.Train)
	for use := range c.pl.Model.Buckets()[op.Bucket].Uses {
		for at := 0; at < n; next++ {
			if next == len(op.Reads) {
				return c.errorf(a, i, "no gradient of use %d for micro-batch %d is reduced", use, at)
			}
			v := op.Reads[next]
			want := gradient(op.Bucket, use, Range{at, v.Hi}, piece)
			if v != want || !IsNode(Range{at, v.Hi}, n) {
				return c.errorf(a, i, "reads %s, where a node of the tree over %d micro-batches of use %d that starts at micro-batch %d, piece %d, is due", v, n, use, at, piece)
			}
			at = v.Hi
		}
	}
	if next != len(op.Reads) {
		return c.errorf(a, i, "reads %s, after all micro-batches are reduced", op.Reads[next])
	}
	return nil
}
