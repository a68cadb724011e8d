package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-train/troupe/bench"
	"github.com/troupe-train/troupe/device/cpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keys are the keys of a JSON object, sorted.
func keys(t *testing.T, v any) []string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(b, &object); err != nil {
		t.Fatal(err)
	}
	var out []string
	for k := range object {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func sameKeys(t *testing.T, v any, want string) {
	t.Helper()
	list := strings.Fields(want)
	slices.Sort(list)
	if got := keys(t, v); !slices.Equal(got, list) {
		t.Errorf("keys\n%v\nand not\n%v", got, list)
	}
}

// columns are the words of the first line of a table.
func columns(t *testing.T, text, want string) {
	t.Helper()
	first, _, _ := strings.Cut(text, "\n")
	if got := strings.Join(strings.Fields(first), " "); got != want {
		t.Errorf("columns %q and not %q", got, want)
	}
}

func TestProducts(t *testing.T) {
	shapes := []bench.Shape{{M: 5, N: 7, K: 3}, {M: 33, N: 48, K: 17, TransA: true, TransB: true}}
	r, err := bench.Products(t.Context(), bench.ProductOptions{Shapes: shapes, Threads: []int{1, 2}, Repetitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, p := range r.Results {
		rows = append(rows, p.Shape)
		flop := 2 * float64(p.M) * float64(p.N) * float64(p.K)
		if got := p.GFLOPS * 1e9 * p.Seconds; math.Abs(got/flop-1) > 1e-9 {
			t.Errorf("%s: %g operations and not %g", p.Shape, got, flop)
		}
		if !(p.Seconds > 0) || p.PeakShare < 0 || p.Repetitions != 2 {
			t.Errorf("%s: %+v", p.Shape, p)
		}
	}
	if want := []string{"5x7x3", "5x7x3", "33x48x17:at:bt", "33x48x17:at:bt"}; !slices.Equal(rows, want) {
		t.Errorf("rows %v and not %v", rows, want)
	}
	if got := r.Results[0].Bytes; got != 4*(15+21+35) {
		t.Errorf("5x7x3 moves %d bytes", got)
	}
	sameKeys(t, r, "level results")
	sameKeys(t, r.Results[0], "shape m n k trans_a trans_b type threads repetitions seconds gflops peak_gflops peak_share bytes gb_per_second")
	var text bytes.Buffer
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	columns(t, text.String(), "shape threads ms GFLOP/s peak share MB GB/s")
	if n := strings.Count(text.String(), "\n"); n != 1+4+1 {
		t.Errorf("%d lines:\n%s", n, &text)
	}
}

func TestKernels(t *testing.T) {
	r, err := bench.Kernels(t.Context(), bench.KernelOptions{Width: 12, Heads: 3, Context: 5, Rows: 2, Vocab: 9, Threads: 2, Repetitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, k := range r.Results {
		if seen[k.Name] {
			t.Errorf("%s stands there twice", k.Name)
		}
		seen[k.Name] = true
		if !(k.Seconds > 0) || k.Bytes <= 0 || k.FLOP < 0 || !(k.FloorSeconds > 0) {
			t.Errorf("%+v", k)
		}
	}
	for _, name := range []string{"qkv", "up, GELU", "attention", "attention, backward", "RoPE", "RoPE, backward", "layer norm", "cross-entropy", "embedding, backward", "AdamW"} {
		if !seen[name] {
			t.Errorf("no kernel %q", name)
		}
	}
	sameKeys(t, r, "width heads context rows vocab type threads level peak_gflops results")
	sameKeys(t, r.Results[0], "kernel shape seconds flop gflops bytes gb_per_second copy_gb_per_second floor_seconds floor_share")
	var text bytes.Buffer
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	columns(t, text.String(), "kernel shape ms GFLOP/s MB GB/s copy GB/s floor ms share")
}

func TestStep(t *testing.T) {
	o := bench.StepOptions{Layers: 2, Width: 16, Heads: 2, Context: 8, Vocab: 50, Batch: 4, MicroBatch: 1, Threads: 2, Steps: 3, Warmup: 1}
	alone, err := bench.Step(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Pipeline, o.Data = 2, 2
	r, err := bench.Step(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if alone.Outside == nil || r.Outside != nil {
		t.Errorf("the time outside kernels is %v alone and %v where actors work at the same time", alone.Outside, r.Outside)
	}
	if alone.PlannedBubble != 0 || !(r.PlannedBubble > 0) || !(r.WithoutBubble < r.StepSeconds) {
		t.Errorf("planned bubble %v alone, and %v in a pipeline", alone.PlannedBubble, r.PlannedBubble)
	}
	if alone.HeapObjects == nil || !(*alone.HeapObjects > 0) {
		t.Errorf("three steps after one take %v objects from the heap", alone.HeapObjects)
	}
	if alone.LossLast != r.LossLast || alone.LossFirst == 0 {
		t.Errorf("losses %v -> %v alone and %v -> %v in a pipeline", alone.LossFirst, alone.LossLast, r.LossFirst, r.LossLast)
	}
	// A tied table of 50 tokens and 8 positions, two blocks of 12 d^2 + 13 d, a last norm.
	if want := 58*16 + 2*(12*16*16+13*16) + 2*16; r.Parameters != want {
		t.Errorf("%d parameters and not %d", r.Parameters, want)
	}
	tokens := 4.0 * 8
	if want := 6*float64(r.Parameters)*tokens + 12*2*16*8*tokens; r.FLOP != want || r.Tokens != int(tokens) {
		t.Errorf("%g operations for %d tokens and not %g for %g", r.FLOP, r.Tokens, want, tokens)
	}
	sameKeys(t, r, `layers width heads context vocab batch micro_batch threads pipeline data schedule precision steps warmup level
		parameters tokens step_seconds tokens_per_second flop gflops peak_gflops peak_share outside_kernels bubble planned_bubble
		step_seconds_without_bubble heap_bytes_per_step heap_objects_per_step peak_bytes loss_first loss_last`)
	var text bytes.Buffer
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	columns(t, text.String(), "layers width heads context batch vocab precision layout threads ms/step tokens/s GFLOP/s peak share outside bubble MB")
}

// TestStepOptions: what is not legal is refused, and said to be the fault of the options.
func TestStepOptions(t *testing.T) {
	legal := bench.StepOptions{Layers: 1, Width: 8, Heads: 2, Context: 4, Vocab: 5, Batch: 2, Steps: 1}
	for name, change := range map[string]func(*bench.StepOptions){
		"--vocab 1":                func(o *bench.StepOptions) { o.Vocab = 1 },
		"--steps 0":                func(o *bench.StepOptions) { o.Steps = 0 },
		"train.threads is -1":      func(o *bench.StepOptions) { o.Threads = -1 },
		"model.heads is 3":         func(o *bench.StepOptions) { o.Heads = 3 },
		`train.precision is "f16"`: func(o *bench.StepOptions) { o.Precision = "f16" },
		"layout.data is 3":         func(o *bench.StepOptions) { o.Data = 3 },
		"layout.pipeline is -1":    func(o *bench.StepOptions) { o.Pipeline = -1 },
		"the model needs":          func(o *bench.StepOptions) { o.Memory = 10_000 },
		"the step needs":           func(o *bench.StepOptions) { o.Memory = 20_000 },
		"train.micro_batch is 3":   func(o *bench.StepOptions) { o.MicroBatch = 3 },
		`layout.schedule is "zig"`: func(o *bench.StepOptions) { o.Schedule = "zig" },
	} {
		o := legal
		change(&o)
		_, err := bench.Step(t.Context(), o)
		if !errors.As(err, new(bench.ErrOptions)) || !strings.Contains(strings.ReplaceAll(err.Error(), ":", ""), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is measured after nothing else is not known.
func TestOneStep(t *testing.T) {
	o := bench.StepOptions{Layers: 1, Width: 8, Heads: 2, Context: 4, Vocab: 5, Batch: 2, Steps: 1}
	first, err := bench.Step(t.Context(), o)
	if err != nil || first.HeapObjects != nil {
		t.Errorf("the first step takes %v objects from the heap: %v", first.HeapObjects, err)
	}
	o.Warmup = 1
	second, err := bench.Step(t.Context(), o)
	if err != nil || second.HeapObjects == nil || !(*second.HeapObjects > 0) {
		t.Errorf("the second step takes %v objects from the heap: %v", second.HeapObjects, err)
	}
}

// The peak is that of the level.
func TestPeakOfLevel(t *testing.T) {
	r, err := bench.Products(t.Context(), bench.ProductOptions{Shapes: []bench.Shape{{M: 2, N: 2, K: 2}}, Threads: []int{1}, Repetitions: 1, Level: cpu.Portable})
	if err != nil || r.Results[0].PeakGFLOPS != 0 || r.Results[0].PeakShare != 0 {
		t.Errorf("portable Go has no vectors: %+v, %v", r, err)
	}
}

// What does not fit is refused before anything is allocated, also where the bytes do not fit an int.
func TestTooLarge(t *testing.T) {
	shapes := []bench.Shape{{M: 2, N: 2, K: 2}, {M: 1 << 20, N: 1 << 20, K: 1 << 20}}
	if _, err := bench.Products(t.Context(), bench.ProductOptions{Shapes: shapes, Threads: []int{1}, Memory: 1 << 34}); !errors.As(err, new(bench.ErrOptions)) {
		t.Errorf("a product of terabytes: %v", err)
	}
	for _, memory := range []uint64{0, 1 << 34} {
		for _, o := range []bench.KernelOptions{
			{Width: 1 << 20, Heads: 1, Context: 1 << 20, Rows: 1 << 20, Vocab: 1 << 20},
			{Width: 1 << 20, Heads: 1 << 20, Context: 1 << 10, Rows: 1 << 20, Vocab: 1},
			{Width: math.MaxInt, Heads: 1, Context: 1, Rows: 1, Vocab: 1},
			{Width: 1, Heads: 1, Context: -1, Rows: 1, Vocab: 1},
		} {
			o.Memory = memory
			if _, err := bench.Kernels(t.Context(), o); !errors.As(err, new(bench.ErrOptions)) {
				t.Errorf("%+v: %v", o, err)
			}
		}
	}
	o := bench.KernelOptions{Width: 64, Heads: 1, Context: 16, Rows: 16, Vocab: 1, Repetitions: 1, Memory: 1 << 20}
	if _, err := bench.Kernels(t.Context(), o); !errors.As(err, new(bench.ErrOptions)) {
		t.Errorf("AdamW of 1.4 MB and as much for the copy, in 1 MB: %v", err)
	}
}

func TestParseShape(t *testing.T) {
	for _, text := range []string{"1x2x3", "768x3072x1024:at", "7x5x3:bt", "7x5x3:at:bt", "7x5x3:bt:bf16"} {
		s, err := bench.ParseShape(text)
		if err != nil || s.String() != text {
			t.Errorf("%s is read as %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "1x2", "1x2x3x4", "0x1x1", "-1x1x1", "1x1x1:ct", "1x1xa", "1x1x99999999", "1x1x1:at:at", "1x1x1:bf16:bt:bf16", "1x1x1:"} {
		if s, err := bench.ParseShape(text); err == nil {
			t.Errorf("%q is read as %v", text, s)
		}
	}
}

func TestParseLevel(t *testing.T) {
	if _, err := bench.ParseLevel("portable"); err != nil {
		t.Error(err)
	}
	if _, err := bench.ParseLevel("sse9"); err == nil {
		t.Error("a level that no processor has is taken")
	}
}

// TestInterrupted: a measurement ends when its context does.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bench.Products(ctx, bench.ProductOptions{Shapes: []bench.Shape{{M: 2, N: 2, K: 2}}, Threads: []int{1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("products: %v", err)
	}
	if _, err := bench.Kernels(ctx, bench.KernelOptions{Width: 4, Heads: 1, Context: 2, Rows: 1, Vocab: 3}); !errors.Is(err, context.Canceled) {
		t.Errorf("kernels: %v", err)
	}
	o := bench.StepOptions{Layers: 1, Width: 8, Heads: 2, Context: 4, Vocab: 5, Batch: 2, Steps: 1000}
	if _, err := bench.Step(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("step: %v", err)
	}
}
