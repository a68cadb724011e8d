package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
)

// KernelOptions is the model and the micro-batch whose kernels are measured.
type KernelOptions struct {
	Width, Heads, Context, Rows, Vocab int
	// Threads; 0 stands for 1.
	Threads int
	// Repetitions is how often each is timed; 0 stands for the package's Repetitions.
	Repetitions int
	// Type is what tensors are stored in: device.F32 (also the zero value) or device.BF16.
	Type  device.DType
	Level cpu.Level
	// Memory is the bytes that may be used; 0 where nobody knows.
	Memory uint64
}

// KernelReport is what was measured.
type KernelReport struct {
	Width      int      `json:"width"`
	Heads      int      `json:"heads"`
	Context    int      `json:"context"`
	Rows       int      `json:"rows"`
	Vocab      int      `json:"vocab"`
	Type       string   `json:"type"`
	Threads    int      `json:"threads"`
	Level      string   `json:"level"`
	PeakGFLOPS float64  `json:"peak_gflops"`
	Results    []Kernel `json:"results"`
}

// Kernel is one kernel. Its floor is the larger of the time that its operations take at the peak and
// the time that a copy takes to move its bytes, which are those that it must read and write; a copy
// of a working set as large, in the same run. FloorShare is floor / seconds.
type Kernel struct {
	Name         string  `json:"kernel"`
	Shape        string  `json:"shape"`
	Seconds      float64 `json:"seconds"`
	FLOP         float64 `json:"flop"`
	GFLOPS       float64 `json:"gflops"`
	Bytes        int64   `json:"bytes"`
	GBPerSecond  float64 `json:"gb_per_second"`
	CopyGBs      float64 `json:"copy_gb_per_second"`
	FloorSeconds float64 `json:"floor_seconds"`
	FloorShare   float64 `json:"floor_share"`
}

// kernelCase is a kernel with its arguments; prepare allocates them.
type kernelCase struct {
	name, shape string
	flop        float64
	// tensors and floats are the elements read and written, of the type of tensors and of 4 bytes.
	tensors, floats int
	prepare         func(r *rig) func(device.Kernels)
}

// check fills in what the zero values stand for, and refuses what is not legal.
func (o *KernelOptions) check() error {
	if o.Threads == 0 {
		o.Threads = 1
	}
	if o.Type == 0 {
		o.Type = device.F32
	}
	err := checkSizes(size{"width", o.Width, 1, maxDimension}, size{"heads", o.Heads, 1, maxDimension}, size{"context", o.Context, 1, maxDimension},
		size{"rows", o.Rows, 1, maxDimension}, size{"vocab", o.Vocab, 1, maxDimension}, size{"threads", o.Threads, 1, maxDimension},
		size{"repeat", o.Repetitions, 0, maxDimension})
	if err != nil {
		return err
	}
	if o.Width%o.Heads != 0 {
		return ErrOptions{fmt.Errorf("--heads %d does not divide --width %d", o.Heads, o.Width)}
	}
	what := fmt.Sprintf("a kernel of width %d, context %d, %d rows and vocabulary %d", o.Width, o.Context, o.Rows, o.Vocab)
	return fits(what, o.bytes(), o.Memory)
}

// bytes is the memory of the largest kernel, with that of the copy beside it.
func (o *KernelOptions) bytes() float64 {
	// At least this many elements, and where they are too many for any machine, an int may not hold the bytes.
	if n := float64(o.Rows) * float64(o.Context) * (8*float64(o.Width) + float64(o.Vocab)); n > 1<<50 {
		return n * float64(o.Type.Size())
	}
	var most int64
	for _, c := range o.cases() {
		r := rig{store: o.Type, counting: true}
		c.prepare(&r)
		most = max(most, r.counted+c.bytes(o.Type))
	}
	return float64(most)
}

// Kernels measures the kernels of a training step, each alone. The error is an ErrOptions where the options are not legal.
func Kernels(ctx context.Context, o KernelOptions) (report *KernelReport, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	r, err := newRig(o.Level, o.Type, o.Threads)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	report = &KernelReport{
		Width: o.Width, Heads: o.Heads, Context: o.Context, Rows: o.Rows, Vocab: o.Vocab,
		Type: o.Type.String(), Threads: o.Threads, Level: r.device.Level().String(),
	}
	var peaks []float64
	for _, c := range o.cases() {
		k, peak, err := measureKernel(ctx, r, o.Repetitions, c)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", c.name, c.shape, err)
		}
		peaks = append(peaks, peak)
		report.Results = append(report.Results, k)
	}
	report.PeakGFLOPS = median(peaks) / 1e9
	return report, nil
}

// bytes is what is read and written where tensors are of type t.
func (c *kernelCase) bytes(t device.DType) int64 {
	return int64(t.Size())*int64(c.tensors) + 4*int64(c.floats)
}

func measureKernel(ctx context.Context, r *rig, repetitions int, c kernelCase) (Kernel, float64, error) {
	defer r.free()
	bytes := c.bytes(r.store)
	half := max(1, int(bytes/8))
	src, dst := r.statistics(half), r.alloc(device.F32, half)
	t, err := r.time(ctx, repetitions, c.prepare(r), func(k device.Kernels) { k.Copy(dst, src) })
	if err != nil {
		return Kernel{}, 0, err
	}
	seconds, moving := t.seconds[0], t.seconds[1]
	floor := max(moving, share(c.flop, t.peak))
	return Kernel{
		Name: c.name, Shape: c.shape, Seconds: seconds,
		FLOP: c.flop, GFLOPS: c.flop / seconds / 1e9,
		Bytes: bytes, GBPerSecond: float64(bytes) / seconds / 1e9, CopyGBs: float64(bytes) / moving / 1e9,
		FloorSeconds: floor, FloorShare: floor / seconds,
	}, t.peak, nil
}

// cases are the kernels of a block, the embedding, the head and the optimizer. Operations are
// multiplies and adds; an exponential counts as the ten of a polynomial.
func (o KernelOptions) cases() []kernelCase {
	d, v := o.Width, o.Vocab
	n := o.Rows * o.Context // tokens
	const exponential = 10
	s := device.AttentionShape{Batch: o.Rows, Tokens: o.Context, Heads: o.Heads, HeadDim: d / o.Heads}
	heads := fmt.Sprintf("%dx%dx%dx%d", s.Batch, s.Tokens, s.Heads, s.HeadDim)
	// Of the scores, those at or before the diagonal count.
	scores := float64(o.Rows*o.Heads) * float64(o.Context) * float64(o.Context+1) / 2
	statistics := o.Rows * o.Heads * o.Context

	// A C of floats is the gradient of a weight.
	linear := func(name string, m device.MatMul, extra, floats int, prepare func(r *rig, c, a, b device.Slice, m device.MatMul) func(device.Kernels)) kernelCase {
		shape := Shape{M: m.M, N: m.N, K: m.K, TransA: m.TransA, TransB: m.TransB}
		return kernelCase{name, shape.String(), shape.flop(), int(shape.bytes()/4) + extra - floats, floats, func(r *rig) func(device.Kernels) {
			c := r.room(m.M * m.N)
			if floats > 0 {
				c = r.alloc(device.F32, m.M*m.N)
			}
			return prepare(r, c, r.floats(m.M*m.K), r.floats(m.K*m.N), m)
		}}
	}
	plain := func(_ *rig, c, a, b device.Slice, m device.MatMul) func(device.Kernels) {
		return func(k device.Kernels) { k.MatMul(c, a, b, m) }
	}
	bias := func(r *rig, c, a, b device.Slice, m device.MatMul) func(device.Kernels) {
		m.Bias = r.floats(m.N)
		return plain(r, c, a, b, m)
	}
	gelu := func(r *rig, c, a, b device.Slice, m device.MatMul) func(device.Kernels) {
		m.GELU = r.room(m.M * m.N)
		return bias(r, c, a, b, m)
	}
	cases := []kernelCase{
		linear("qkv", device.MatMul{M: n, N: 3 * d, K: d, TransB: true}, 3*d, 0, bias),
		linear("up, GELU", device.MatMul{M: n, N: 4 * d, K: d, TransB: true}, 4*d+4*n*d, 0, gelu),
		linear("down", device.MatMul{M: n, N: d, K: 4 * d, TransB: true}, d, 0, bias),
		linear("down, input gradient", device.MatMul{M: n, N: 4 * d, K: d}, 0, 0, plain),
		linear("down, weight gradient", device.MatMul{M: d, N: 4 * d, K: n, TransA: true}, 0, 4*d*d, plain),
		linear("head", device.MatMul{M: n, N: v, K: d, TransB: true}, 0, 0, plain),
		{"sum of rows", fmt.Sprintf("%dx%d", n, 4*d), float64(4 * n * d), 4 * n * d, 4 * d, func(r *rig) func(device.Kernels) {
			dst, src := r.alloc(device.F32, 4*d), r.floats(4*n*d)
			return func(k device.Kernels) { k.SumRows(dst, src, n, 4*d) }
		}},
		{"attention", heads, scores * (4*float64(s.HeadDim) + exponential), 4 * n * d, statistics, func(r *rig) func(device.Kernels) {
			out, lse, qkv := r.room(n*d), r.alloc(device.F32, statistics), r.floats(3*n*d)
			return func(k device.Kernels) { k.Attention(out, lse, qkv, s) }
		}},
		{"attention, backward", heads, scores * (10*float64(s.HeadDim) + exponential), 8 * n * d, statistics, func(r *rig) func(device.Kernels) {
			out, lse, qkv := r.room(n*d), r.alloc(device.F32, statistics), r.floats(3*n*d)
			dqkv, dout := r.room(3*n*d), r.floats(n*d)
			var work device.Slice
			return func(k device.Kernels) {
				if work.IsZero() {
					work = r.alloc(device.F32, k.AttentionWork(s))
					k.Attention(out, lse, qkv, s)
				}
				k.AttentionBackward(dqkv, dout, out, lse, qkv, work, s)
			}
		}},
		{"layer norm", fmt.Sprintf("%dx%d", n, d), 8 * float64(n*d), 2 * n * d, 2 * n, func(r *rig) func(device.Kernels) {
			y, mean, rstd, x, gain, bias := r.room(n*d), r.alloc(device.F32, n), r.alloc(device.F32, n), r.floats(n*d), r.floats(d), r.floats(d)
			return func(k device.Kernels) { k.LayerNorm(y, mean, rstd, x, gain, bias, n, d) }
		}},
		{"layer norm, input gradient", fmt.Sprintf("%dx%d", n, d), 12 * float64(n*d), 4 * n * d, 2 * n, func(r *rig) func(device.Kernels) {
			dx, residual, dy, x, gain, mean, rstd := r.room(n*d), r.floats(n*d), r.floats(n*d), r.floats(n*d), r.floats(d), r.statistics(n), r.statistics(n)
			return func(k device.Kernels) { k.LayerNormBackwardInput(dx, residual, dy, x, gain, mean, rstd, n, d) }
		}},
		{"layer norm, weight gradient", fmt.Sprintf("%dx%d", n, d), 5 * float64(n*d), 2 * n * d, 2*n + 2*d, func(r *rig) func(device.Kernels) {
			dgain, dbias, dy, x, mean, rstd := r.alloc(device.F32, d), r.alloc(device.F32, d), r.floats(n*d), r.floats(n*d), r.statistics(n), r.statistics(n)
			return func(k device.Kernels) { k.LayerNormBackwardWeight(dgain, dbias, dy, x, mean, rstd, n, d) }
		}},
		{"RMS norm", fmt.Sprintf("%dx%d", n, d), 4 * float64(n*d), 2 * n * d, n, func(r *rig) func(device.Kernels) {
			y, rstd, x, gain := r.room(n*d), r.alloc(device.F32, n), r.floats(n*d), r.floats(d)
			return func(k device.Kernels) { k.RMSNorm(y, rstd, x, gain, n, d) }
		}},
		// A pair of a query or a key is turned by four multiplies and two adds.
		{"RoPE", heads, 6 * float64(n*d), 6 * n * d, 0, func(r *rig) func(device.Kernels) {
			y, qkv := r.room(3*n*d), r.floats(3*n*d)
			return func(k device.Kernels) { k.RoPE(y, qkv, s) }
		}},
		{"RoPE, backward", heads, 6 * float64(n*d), 6 * n * d, 0, func(r *rig) func(device.Kernels) {
			dx, dy := r.room(3*n*d), r.floats(3*n*d)
			return func(k device.Kernels) { k.RoPEBackward(dx, dy, s) }
		}},
		{"SwiGLU", fmt.Sprintf("%dx%d", n, 4*d), float64(4*n*d) * (5 + exponential), 12 * n * d, 0, func(r *rig) func(device.Kernels) {
			y, x := r.room(4*n*d), r.floats(8*n*d)
			return func(k device.Kernels) { k.SwiGLU(y, x, n, 4*d) }
		}},
		{"SwiGLU, backward", fmt.Sprintf("%dx%d", n, 4*d), float64(4*n*d) * (10 + exponential), 20 * n * d, 0, func(r *rig) func(device.Kernels) {
			dx, dy, x := r.room(8*n*d), r.floats(4*n*d), r.floats(8*n*d)
			return func(k device.Kernels) { k.SwiGLUBackward(dx, dy, x, n, 4*d) }
		}},
		{"GELU, backward", fmt.Sprint(4 * n * d), float64(4*n*d) * (14 + exponential), 12 * n * d, 0, func(r *rig) func(device.Kernels) {
			dx, dy, x := r.room(4*n*d), r.floats(4*n*d), r.floats(4*n*d)
			return func(k device.Kernels) { k.GELUBackward(dx, dy, x) }
		}},
		{"dropout 0.1", fmt.Sprint(n * d), 2 * float64(n*d), 3 * n * d, 0, func(r *rig) func(device.Kernels) {
			y, residual, x := r.room(n*d), r.floats(n*d), r.floats(n*d)
			return func(k device.Kernels) {
				k.Dropout(y, residual, x, device.Dropout{P: 0.1, Key: 1, PerSample: o.Context * d})
			}
		}},
		{"residual", fmt.Sprint(n * d), float64(n * d), 3 * n * d, 0, func(r *rig) func(device.Kernels) {
			y, residual, x := r.room(n*d), r.floats(n*d), r.floats(n*d)
			return func(k device.Kernels) { k.Dropout(y, residual, x, device.Dropout{PerSample: o.Context * d}) }
		}},
		{"embedding", fmt.Sprintf("%dx%d", n, d), float64(n * d), 3 * n * d, n, func(r *rig) func(device.Kernels) {
			y, tokens, words, positions := r.room(n*d), r.ints(n, v), r.floats(v*d), r.floats(o.Context*d)
			return func(k device.Kernels) { k.Embed(y, tokens, words, positions, o.Rows, o.Context, d) }
		}},
		{"embedding, backward", fmt.Sprintf("%dx%d", n, d), 2 * float64(n*d), n * d, n + n*d + v*d + o.Context*d, func(r *rig) func(device.Kernels) {
			dwords, dpositions, dy, tokens := r.alloc(device.F32, v*d), r.alloc(device.F32, o.Context*d), r.floats(n*d), r.ints(n, v)
			return func(k device.Kernels) { k.EmbedBackward(dwords, dpositions, dy, tokens, o.Rows, o.Context, d) }
		}},
		{"cross-entropy", fmt.Sprintf("%dx%d", n, v), float64(n*v) * (2 + exponential), n * v, 3 * n, func(r *rig) func(device.Kernels) {
			loss, lse, logits, targets := r.alloc(device.F32, n), r.alloc(device.F32, n), r.floats(n*v), r.ints(n, v)
			return func(k device.Kernels) { k.CrossEntropy(loss, lse, logits, targets, n, v) }
		}},
		{"cross-entropy, backward", fmt.Sprintf("%dx%d", n, v), float64(n*v) * (2 + exponential), 2 * n * v, 2 * n, func(r *rig) func(device.Kernels) {
			dlogits, logits, lse, targets := r.room(n*v), r.floats(n*v), r.statistics(n), r.ints(n, v)
			return func(k device.Kernels) { k.CrossEntropyBackward(dlogits, logits, lse, targets, n, v, 1/float64(n)) }
		}},
		{"sum of gradients", fmt.Sprint(12 * d * d), 12 * float64(d*d), 0, 36 * d * d, func(r *rig) func(device.Kernels) {
			a, b := r.statistics(12*d*d), r.statistics(12*d*d)
			return func(k device.Kernels) { k.Add(a, a, b) }
		}},
		{"squares of gradients", fmt.Sprint(12 * d * d), 24 * float64(d*d), 0, 12 * d * d, func(r *rig) func(device.Kernels) {
			const block = 1024
			src := r.statistics(12 * d * d)
			dst := r.alloc(device.F64, (src.Len+block-1)/block)
			return func(k device.Kernels) { k.SumSquares(dst, src, block) }
		}},
		{"AdamW", fmt.Sprint(12 * d * d), 16 * 12 * float64(d*d), 0, 7 * 12 * d * d, func(r *rig) func(device.Kernels) {
			w, m, v, g := r.statistics(12*d*d), r.alloc(device.F32, 12*d*d), r.alloc(device.F32, 12*d*d), r.statistics(12*d*d)
			next := r.alloc(device.F32, 12*d*d)
			return func(k device.Kernels) {
				k.AdamW(next, m, v, w, m, v, g, device.AdamW{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, Decay: 0.1, Step: 10, GradScale: 1})
			}
		}},
	}
	if s.HeadDim%2 != 0 { // RoPE turns pairs
		return slices.DeleteFunc(cases, func(c kernelCase) bool { return strings.HasPrefix(c.name, "RoPE") })
	}
	return cases
}

// Print writes the report as a table.
func (r *KernelReport) Print(out io.Writer) error {
	t := newTable(out, "kernel", "shape", "ms", "GFLOP/s", "MB", "GB/s", "copy GB/s", "floor ms", "share")
	for _, k := range r.Results {
		t.row(k.Name, k.Shape, milliseconds(k.Seconds), oneDigit(k.GFLOPS), megabytes(k.Bytes), oneDigit(k.GBPerSecond), oneDigit(k.CopyGBs), milliseconds(k.FloorSeconds), percent(k.FloorShare))
	}
	t.note("width %d, %d heads, context %d, %d rows, vocabulary %d; tensors of %s, %d threads, level %s, whose peak in GFLOP/s is %s",
		r.Width, r.Heads, r.Context, r.Rows, r.Vocab, r.Type, r.Threads, r.Level, known(r.PeakGFLOPS))
	t.note("the floor is the larger of operations at the peak and bytes at the speed of a copy of as many, all in the same run")
	return t.flush()
}
