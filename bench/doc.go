// Package bench measures what the machine does with Troupe: matrix products, the other kernels, and
// whole training steps. `troupe bench` prints what it returns.
//
//	report, err := bench.Products(ctx, bench.ProductOptions{Shapes: bench.DefaultShapes, Threads: []int{1, 2}})
//	report.Print(os.Stdout)
//
//	step, err := bench.Step(ctx, bench.StepOptions{Layers: 6, Width: 384, Heads: 6, Context: 256, Batch: 8, Vocab: 256})
//
// A speed means little without the ceiling that it is under, and on a shared machine a ceiling of
// another minute means little either. So every run measures its own: the peak is a loop of fused
// multiply-adds and nothing else on as many threads as the kernel has, taken in turns with the
// kernel; the bandwidth is a copy of as many bytes as the kernel moves. All times are medians.
package bench
