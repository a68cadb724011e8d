package plan

// free fills in Frees: each value ends with the last operation that reads it, or with the one
// that writes it when none does. What persists is never freed. The order is that of Reads and then Writes.
func free(a ActorID, ops []Op) {
	last := map[Value]int{}
	for i, op := range ops {
		for _, v := range op.Reads {
			last[v] = i
		}
		for _, v := range op.Writes {
			last[v] = i
		}
	}
	for i := range ops {
		op := &ops[i]
		for _, values := range [][]Value{op.Reads, op.Writes} {
			for _, v := range values {
				if last[v] == i && !persists(a, v) {
					op.Frees = append(op.Frees, v)
				}
			}
		}
	}
}
