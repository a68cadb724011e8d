package plan

// checkValues proves for each program that every value is written once, before it is read; that no
// operation writes what it reads; that nothing is read after it was freed; and that everything is
// read and freed in the end, except what persists.
func (c *checker) checkValues() error {
	for _, a := range c.pl.Actors {
		written := map[Value]int{}
		freed := map[Value]int{}
		read := map[Value]bool{}
		var order []Value
		for i, op := range c.program(a.ID).Ops {
			for _, v := range op.Reads {
				if _, ok := written[v]; !ok {
					return c.errorf(a.ID, i, "reads %s, which nothing before it writes", v)
				}
				if at, ok := freed[v]; ok {
					return c.errorf(a.ID, i, "reads %s, which operation %d freed", v, at)
				}
				read[v] = true
			}
			for _, v := range op.Writes {
				if at, ok := written[v]; ok {
					return c.errorf(a.ID, i, "writes %s, which operation %d has written", v, at)
				}
				written[v] = i
				order = append(order, v)
			}
			for _, v := range op.Frees {
				if _, ok := written[v]; !ok {
					return c.errorf(a.ID, i, "frees %s, which nothing has written", v)
				}
				if at, ok := freed[v]; ok {
					return c.errorf(a.ID, i, "frees %s, which operation %d has freed", v, at)
				}
				if persists(a.ID, v) {
					return c.errorf(a.ID, i, "frees %s, which outlives the program", v)
				}
				freed[v] = i
			}
		}
		for _, v := range order {
			if _, ok := freed[v]; !ok && !persists(a.ID, v) {
				return c.errorf(a.ID, written[v], "writes %s, which is never freed", v)
			}
			// The trainer feeds targets that no layer may read, and decides though nothing may be trained.
			lazy := c.program(a.ID).Ops[written[v]].Kind == Offer
			if !read[v] && a.ID != Trainer && !persists(a.ID, v) && !lazy {
				return c.errorf(a.ID, written[v], "writes %s, which nothing reads", v)
			}
		}
	}
	return nil
}
