package allreduce

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// Part is the gradient of one use of a vector, summed over the micro-batches of a node of the tree.
// All parts of a Reduce have the same length.
type Part struct {
	Use   int
	Node  plan.Range
	Slice device.Slice
}

// Reduce sums parts over n micro-batches and all uses. Parts come by use and then from low to high,
// and those of a use cover [0, n). They are not written to. alloc returns memory for a sum; the
// caller owns the result, which is a part itself when there is only one.
func Reduce(k device.Kernels, n int, parts []Part, alloc func() (device.Slice, error)) (device.Slice, error) {
	if len(parts) == 0 {
		return device.Slice{}, fmt.Errorf("allreduce: nothing to sum")
	}
	s := &sums{k: k, alloc: alloc}
	var total operand
	for len(parts) > 0 {
		use := parts[0].Use
		var nodes []plan.Range
		var terms []operand
		for len(parts) > 0 && parts[0].Use == use {
			nodes = append(nodes, parts[0].Node)
			terms = append(terms, operand{Slice: parts[0].Slice})
			parts = parts[1:]
		}
		if len(parts) > 0 && parts[0].Use < use {
			s.release(append(terms, total))
			return device.Slice{}, fmt.Errorf("allreduce: use %d comes after use %d", parts[0].Use, use)
		}
		order, err := plan.Merge(nodes, n)
		if err != nil {
			s.release([]operand{total})
			return device.Slice{}, fmt.Errorf("allreduce: use %d: %w", use, err)
		}
		for _, o := range order {
			if terms[o.Into], err = s.add(terms[o.Into], terms[o.From]); err != nil {
				s.release(append(terms, total))
				return device.Slice{}, err
			}
			terms[o.From] = operand{}
		}
		if total.IsZero() {
			total = terms[0]
		} else if total, err = s.add(total, terms[0]); err != nil {
			s.release([]operand{total, terms[0]})
			return device.Slice{}, err
		}
	}
	if !total.own {
		total.Retain()
	}
	return total.Slice, nil
}

// operand is a term or a partial sum. Only memory of its own may be written to.
type operand struct {
	device.Slice
	own bool
}

type sums struct {
	k     device.Kernels
	alloc func() (device.Slice, error)
}

// add returns a + b in memory of a or b where that may be written to. It uses up both; on an error neither.
func (s *sums) add(a, b operand) (operand, error) {
	switch {
	case a.own:
		s.k.Add(a.Slice, a.Slice, b.Slice)
		s.release([]operand{b})
		return a, nil
	case b.own:
		s.k.Add(b.Slice, a.Slice, b.Slice)
		return b, nil
	}
	dst, err := s.alloc()
	if err != nil {
		return a, err
	}
	s.k.Add(dst, a.Slice, b.Slice)
	return operand{dst, true}, nil
}

func (s *sums) release(list []operand) {
	for _, o := range list {
		if o.own {
			o.Release()
		}
	}
}
