// Package schedule holds the orders in which the stages of a pipeline work through the
// micro-batches of a step: what papers draw as coloured boxes. A generator is a pure function in
// a file of its own, with one line in the registry:
//
//	s, ok := schedule.ByName("1f1b")
//	for rank, tasks := range s.Order(schedule.Shape{Ranks: 4, Micro: 8}) {
//		for _, t := range tasks {
//			fmt.Println(rank, t) // 0 F0, 0 F1, ...
//		}
//	}
//
// The lowering passes of package plan turn the tasks into programs with messages and gradient
// reductions. A schedule knows nothing of layers, data ranks or bytes.
//
// Invariants of every order, for every Ranks >= 1 and Micro >= 1: each rank has F, B and W of each
// micro-batch exactly once; B comes after F and W after B; and a rank that waits only for its
// neighbours, with F handed down the pipeline and B up it, always reaches the end.
package schedule
