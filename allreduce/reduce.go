package allreduce

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// Part names a term: the gradient of one use of a vector, summed over the micro-batches of a node of the tree.
type Part struct {
	Use  int
	Node plan.Range
}

// Sum is the order in which the parts of a vector are added. It is used on one stream at a time, and
// takes nothing from the Go heap once it is made.
type Sum struct {
	steps []plan.Sum // after the last one the sum of everything is at 0
	terms []term     // one for each part
}

// term is a part or a partial sum. Only memory of its own may be written to.
type term struct {
	device.Slice
	own bool
}

// NewSum is the order over n micro-batches and all uses. Parts come by use and then from low to high,
// and those of a use cover [0, n).
func NewSum(n int, parts []Part) (*Sum, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("allreduce: nothing to sum")
	}
	s := &Sum{terms: make([]term, len(parts))}
	for first := 0; first < len(parts); {
		use := parts[first].Use
		var nodes []plan.Range
		for _, p := range parts[first:] {
			if p.Use != use {
				break
			}
			nodes = append(nodes, p.Node)
		}
		order, err := plan.Merge(nodes, n)
		if err != nil {
			return nil, fmt.Errorf("allreduce: use %d: %w", use, err)
		}
		for _, o := range order {
			s.steps = append(s.steps, plan.Sum{Into: first + o.Into, From: first + o.From})
		}
		if first > 0 {
			s.steps = append(s.steps, plan.Sum{Into: 0, From: first})
		}
		first += len(nodes)
		if first < len(parts) && parts[first].Use < use {
			return nil, fmt.Errorf("allreduce: use %d comes after use %d", parts[first].Use, use)
		}
	}
	return s, nil
}

// Of sums parts, of equal length and in the order in which NewSum was told of them. They are not written to. alloc
// returns memory for a sum; the caller owns the result, which is a part itself when there is only one.
func (s *Sum) Of(k device.Kernels, parts []device.Slice, alloc func() (device.Slice, error)) (device.Slice, error) {
	if len(parts) != len(s.terms) {
		return device.Slice{}, fmt.Errorf("allreduce: %d parts where there must be %d", len(parts), len(s.terms))
	}
	for i, p := range parts {
		s.terms[i] = term{Slice: p}
	}
	for _, step := range s.steps {
		if err := s.add(k, step.Into, step.From, alloc); err != nil {
			for _, t := range s.terms {
				if t.own {
					t.Release()
				}
			}
			clear(s.terms)
			return device.Slice{}, err
		}
	}
	total := s.terms[0]
	clear(s.terms)
	if !total.own {
		total.Retain()
	}
	return total.Slice, nil
}

// add makes the term into the sum of both, in memory of one of them where that may be written to, and
// uses up from. On an error both are as they were.
func (s *Sum) add(k device.Kernels, into, from int, alloc func() (device.Slice, error)) error {
	a, b := &s.terms[into], &s.terms[from]
	switch {
	case a.own:
		k.Add(a.Slice, a.Slice, b.Slice)
		if b.own {
			b.Release()
		}
	case b.own:
		k.Add(b.Slice, a.Slice, b.Slice)
		*a = *b
	default:
		dst, err := alloc()
		if err != nil {
			return err
		}
		k.Add(dst, a.Slice, b.Slice)
		*a = term{dst, true}
	}
	*b = term{}
	return nil
}
