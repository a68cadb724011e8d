package schedule

// OneForwardOneBackward is 1F1B without flushes between micro-batches (Narayanan et al. 2021,
// section 2.2, the non-interleaved schedule): rank r of p runs p-1-r forward passes ahead, then one
// forward and one backward pass in turn. A rank keeps the activations of min(p-r, Micro)
// micro-batches. With fewer micro-batches than ranks the warm-up is all there is to run ahead.
func OneForwardOneBackward(s Shape) [][]Task {
	order := make([][]Task, s.Ranks)
	for r := range order {
		tasks := make([]Task, 0, 3*s.Micro)
		ahead := min(s.Ranks-1-r, s.Micro)
		for m := range ahead {
			tasks = append(tasks, Task{Kind: F, Micro: m})
		}
		for m := range s.Micro {
			if f := ahead + m; f < s.Micro {
				tasks = append(tasks, Task{Kind: F, Micro: f})
			}
			tasks = append(tasks, Task{Kind: B, Micro: m}, Task{Kind: W, Micro: m})
		}
		order[r] = tasks
	}
	return order
}
