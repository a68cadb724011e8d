package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-train/troupe/bench"
	"github.com/troupe-train/troupe/device"
)

func benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "bench",
		Short:   "Measure matrix products, kernels and training steps on this machine",
		Example: "  troupe bench gemm --threads 1,2\n  troupe bench step --layers 6 --width 384 --heads 6 --context 256 --batch 8",
		Args:    chooses,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(benchGEMMCommand(), benchKernelsCommand(), benchStepCommand())
	return c
}

// measured is a report of package bench.
type measured interface{ Print(io.Writer) error }

// printMeasured prints a report as a table, or as one JSON object.
func printMeasured(c *cobra.Command, asJSON bool, r measured) error {
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(r)
	}
	return r.Print(c.OutOrStdout())
}

// benchFlags are those that all of bench have.
type benchFlags struct {
	level string
	json  bool
}

func (o *benchFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&o.level, "level", "", "processor instructions of the kernels: portable, avx2, avx512 or avx512bf16; the highest that there is when not given")
	c.Flags().BoolVar(&o.json, "json", false, "print one JSON object")
}

// checkThreads refuses what no stream can have: it has no more workers than there are processors.
func checkThreads(threads ...int) error {
	for _, n := range threads {
		if most := runtime.GOMAXPROCS(0); n < 1 || n > most {
			return usage(fmt.Errorf("--threads %d; legal is 1 to %d, the processors of this machine", n, most))
		}
	}
	return nil
}

// blame marks errors of options as the fault of who typed them, and calls keys of the job by the flags that they came from.
func blame(err error) error {
	if !errors.As(err, new(bench.ErrOptions)) {
		return err
	}
	return usage(errors.New(keysToFlags.Replace(err.Error())))
}

var keysToFlags = strings.NewReplacer("model.layers", "--layers", "model.width", "--width", "model.heads", "--heads", "model.context", "--context",
	"train.batch", "--batch", "train.micro_batch", "--micro-batch", "train.threads", "--threads", "train.steps", "--steps and --warmup",
	"train.precision", "--precision", "layout.pipeline", "--pipeline", "layout.data", "--data", "layout.schedule", "--schedule")

func benchGEMMCommand() *cobra.Command {
	var o benchFlags
	var shapes []string
	var dtype string
	var threads []int
	var repetitions int
	c := &cobra.Command{
		Use:     "gemm",
		Short:   "Measure matrix products against the peak of the processor",
		Example: "  troupe bench gemm\n  troupe bench gemm --shape 1024x3072x768:bt --threads 1,2 --json",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			p := bench.ProductOptions{Shapes: bench.DefaultShapes, Threads: threads, Repetitions: repetitions}
			if c.Flags().Changed("shape") {
				if p.Shapes = nil; len(shapes) == 0 {
					shapes = []string{""} // which is no shape
				}
			}
			for _, text := range shapes {
				s, err := bench.ParseShape(text)
				if err != nil {
					return usage(fmt.Errorf("--shape: %w", err))
				}
				p.Shapes = append(p.Shapes, s)
			}
			if repetitions < 1 {
				return usage(fmt.Errorf("--repeat %d; legal is 1 and more", repetitions))
			}
			t, err := parseType(dtype)
			if err != nil {
				return err
			}
			// A copy: what stands there when nothing is asked for belongs to the package.
			p.Shapes = slices.Clone(p.Shapes)
			for i := range p.Shapes {
				if p.Shapes[i].BF16 && t == device.F32 && c.Flags().Changed("type") {
					return usage(fmt.Errorf("--shape %s contradicts --type f32; one of the two is legal", p.Shapes[i]))
				}
				p.Shapes[i].BF16 = p.Shapes[i].BF16 || t == device.BF16
			}
			if err = checkThreads(threads...); err != nil {
				return err
			}
			if p.Level, err = bench.ParseLevel(o.level); err != nil {
				return usage(fmt.Errorf("--level: %w", err))
			}
			p.Memory = machineMemory()
			r, err := bench.Products(c.Context(), p)
			if err != nil {
				return blame(err)
			}
			return printMeasured(c, o.json, r)
		},
	}
	o.register(c)
	f := c.Flags()
	f.StringSliceVar(&shapes, "shape", nil, "MxNxK, with :at or :bt behind it for an operand that is stored transposed, and :bf16 for bfloat16; may be repeated")
	f.StringVar(&dtype, "type", "f32", "the type of all matrices: f32, or bf16 for those too that do not say so")
	f.IntSliceVar(&threads, "threads", defaultThreads(), "numbers of threads to measure")
	f.IntVar(&repetitions, "repeat", bench.Repetitions, "how often each product is timed; the median counts")
	return c
}

// parseType reads what tensors are stored in.
func parseType(name string) (device.DType, error) {
	for _, t := range []device.DType{device.F32, device.BF16} {
		if t.String() == name {
			return t, nil
		}
	}
	return 0, usage(fmt.Errorf("--type %q; f32 and bf16 are legal", name))
}

// defaultThreads is one, and all cores.
func defaultThreads() []int {
	if n := runtime.GOMAXPROCS(0); n > 1 {
		return []int{1, n}
	}
	return []int{1}
}

func benchKernelsCommand() *cobra.Command {
	var o benchFlags
	var p bench.KernelOptions
	var dtype string
	c := &cobra.Command{
		Use:     "kernels",
		Short:   "Measure each kernel of a training step against its floor",
		Example: "  troupe bench kernels --width 768 --heads 12 --context 256 --rows 4 --threads 1",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			if p.Repetitions < 1 {
				return usage(fmt.Errorf("--repeat %d; legal is 1 and more", p.Repetitions))
			}
			err := checkThreads(p.Threads)
			if err != nil {
				return err
			}
			if p.Type, err = parseType(dtype); err != nil {
				return err
			}
			if p.Level, err = bench.ParseLevel(o.level); err != nil {
				return usage(fmt.Errorf("--level: %w", err))
			}
			p.Memory = machineMemory()
			r, err := bench.Kernels(c.Context(), p)
			if err != nil {
				return blame(err)
			}
			return printMeasured(c, o.json, r)
		},
	}
	o.register(c)
	f := c.Flags()
	f.IntVar(&p.Width, "width", 384, "width of the model")
	f.IntVar(&p.Heads, "heads", 6, "attention heads")
	f.IntVar(&p.Context, "context", 256, "tokens of a sequence")
	f.IntVar(&p.Rows, "rows", 8, "sequences of a micro-batch")
	f.IntVar(&p.Vocab, "vocab", 256, "tokens of the vocabulary")
	f.StringVar(&dtype, "type", "f32", "what tensors are stored in: f32 or bf16")
	f.IntVar(&p.Threads, "threads", 1, "threads of the stream")
	f.IntVar(&p.Repetitions, "repeat", bench.Repetitions, "how often each kernel is timed; the median counts")
	return c
}

func benchStepCommand() *cobra.Command {
	var o benchFlags
	var p bench.StepOptions
	c := &cobra.Command{
		Use:   "step",
		Short: "Measure the training step of a GPT on made-up tokens",
		Example: "  troupe bench step --layers 12 --width 768 --heads 12 --context 256 --batch 4\n" +
			"  troupe bench step --batch 16 --micro-batch 1 --pipeline 2 --threads 2 --json",
		Args: takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if p.Level, err = bench.ParseLevel(o.level); err != nil {
				return usage(fmt.Errorf("--level: %w", err))
			}
			// What is not given stands for something in StepOptions; given, it must be legal.
			for name, n := range map[string]int{"pipeline": p.Pipeline, "data": p.Data} {
				if n == 0 {
					return usage(fmt.Errorf("--%s 0; legal is 1 and more", name))
				}
			}
			for name, text := range map[string]string{"schedule": p.Schedule, "precision": p.Precision} {
				if text == "" {
					return usage(fmt.Errorf("--%s is empty", name))
				}
			}
			p.Memory = machineMemory()
			r, err := bench.Step(c.Context(), p)
			if err != nil {
				return blame(err)
			}
			return printMeasured(c, o.json, r)
		},
	}
	o.register(c)
	f := c.Flags()
	f.IntVar(&p.Layers, "layers", 6, "transformer blocks")
	f.IntVar(&p.Width, "width", 384, "width of the model")
	f.IntVar(&p.Heads, "heads", 6, "attention heads")
	f.IntVar(&p.Context, "context", 256, "tokens of a sequence")
	f.IntVar(&p.Vocab, "vocab", 256, "tokens of the vocabulary")
	f.IntVar(&p.Batch, "batch", 8, "sequences of a step")
	f.IntVar(&p.MicroBatch, "micro-batch", 0, "sequences that run together; 0: the whole batch")
	f.IntVar(&p.Threads, "threads", 0, "threads of the process; 0: all cores")
	f.IntVar(&p.Steps, "steps", 10, "steps that are measured")
	f.IntVar(&p.Warmup, "warmup", 2, "steps before them that are not")
	f.IntVar(&p.Pipeline, "pipeline", 1, "pipeline stages")
	f.IntVar(&p.Data, "data", 1, "data ranks")
	f.StringVar(&p.Schedule, "schedule", "1f1b", "pipeline schedule")
	f.StringVar(&p.Precision, "precision", "f32", "what weights and activations are stored in: f32 or bf16")
	return c
}
