package schedule

// GPipe is all forward passes and then all backward passes (Huang et al. 2019, section 2.3). The
// backward passes go from micro-batch 0 up, so that gradients come in the order of the tree that
// sums them. A rank keeps the activations of all micro-batches.
func GPipe(s Shape) [][]Task {
	order := make([][]Task, s.Ranks)
	for r := range order {
		tasks := make([]Task, 0, 3*s.Micro)
		for m := range s.Micro {
			tasks = append(tasks, Task{Kind: F, Micro: m})
		}
		for m := range s.Micro {
			tasks = append(tasks, Task{Kind: B, Micro: m}, Task{Kind: W, Micro: m})
		}
		order[r] = tasks
	}
	return order
}
