package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
)

// Shape is a matrix product: [M,N] = op(A) op(B) with op(A) [M,K] and op(B) [K,N]. TransA says that A
// is stored [K,M], TransB that B is stored [N,K], and BF16 that all three are bfloat16 and not float32.
type Shape struct {
	M, N, K        int
	TransA, TransB bool
	BF16           bool
}

// DefaultShapes are the products that are measured where none are asked for.
var DefaultShapes = []Shape{
	{M: 512, N: 512, K: 512},
	{M: 768, N: 3072, K: 1024},
	{M: 1024, N: 3072, K: 768},
	{M: 64, N: 768, K: 768},
	{M: 256, N: 50304, K: 768},
}

// maxDimension keeps every size below what an int of bytes holds.
const maxDimension = 1 << 20

// ParseShape reads MxNxK, with :at and :bt behind it for operands that are stored transposed, and :bf16 for bfloat16.
func ParseShape(text string) (Shape, error) {
	fail := func(what string) (Shape, error) {
		return Shape{}, fmt.Errorf("shape %q: %s; MxNxK is legal, such as 768x3072x1024, with :at or :bt behind it where A or B is stored transposed, and :bf16 for bfloat16", text, what)
	}
	parts := strings.Split(text, ":")
	sizes := strings.Split(parts[0], "x")
	if text == "" {
		return fail("it is empty")
	}
	if len(sizes) != 3 {
		return fail(fmt.Sprintf("it has %d dimensions", len(sizes)))
	}
	var s Shape
	for i, at := range []*int{&s.M, &s.N, &s.K} {
		n, err := strconv.Atoi(sizes[i])
		if err != nil || n < 1 || n > maxDimension {
			return fail(fmt.Sprintf("%q is not a number from 1 to %d", sizes[i], maxDimension))
		}
		*at = n
	}
	for i, p := range parts[1:] {
		if slices.Contains(parts[1:i+1], p) {
			return fail(fmt.Sprintf("%q stands there twice", p))
		}
		switch p {
		case "at":
			s.TransA = true
		case "bt":
			s.TransB = true
		case "bf16":
			s.BF16 = true
		default:
			return fail(fmt.Sprintf("%q is not known", p))
		}
	}
	return s, nil
}

func (s Shape) String() string {
	text := fmt.Sprintf("%dx%dx%d", s.M, s.N, s.K)
	if s.TransA {
		text += ":at"
	}
	if s.TransB {
		text += ":bt"
	}
	if s.BF16 {
		text += ":bf16"
	}
	return text
}

// flop is the operations: a multiply and an add count as two.
func (s Shape) flop() float64 { return 2 * float64(s.M) * float64(s.N) * float64(s.K) }

func (s Shape) dtype() device.DType {
	if s.BF16 {
		return device.BF16
	}
	return device.F32
}

// bytes is the least that moves: both operands once and the result once.
func (s Shape) bytes() int64 {
	return int64(s.dtype().Size()) * (int64(s.M)*int64(s.K) + int64(s.K)*int64(s.N) + int64(s.M)*int64(s.N))
}

// ProductOptions says which products are measured. All combinations of shapes and threads are.
type ProductOptions struct {
	Shapes  []Shape
	Threads []int
	// Repetitions is how often each is timed; 0 stands for the package's Repetitions.
	Repetitions int
	Level       cpu.Level
	// Memory is the bytes that may be used; 0 where nobody knows.
	Memory uint64
}

// ProductReport is what was measured.
type ProductReport struct {
	Level   string    `json:"level"`
	Results []Product `json:"results"`
}

// Product is one shape on some threads. Peak is that of as many threads, in the same run; it and the
// share are 0 where the level has no vector kernels.
type Product struct {
	Shape       string  `json:"shape"`
	M           int     `json:"m"`
	N           int     `json:"n"`
	K           int     `json:"k"`
	TransA      bool    `json:"trans_a"`
	TransB      bool    `json:"trans_b"`
	Type        string  `json:"type"`
	Threads     int     `json:"threads"`
	Repetitions int     `json:"repetitions"`
	Seconds     float64 `json:"seconds"`
	GFLOPS      float64 `json:"gflops"`
	PeakGFLOPS  float64 `json:"peak_gflops"`
	PeakShare   float64 `json:"peak_share"`
	Bytes       int64   `json:"bytes"`
	GBPerSecond float64 `json:"gb_per_second"`
}

// Products measures matrix products. The error is an ErrOptions where they do not fit the memory; then none was measured.
func Products(ctx context.Context, o ProductOptions) (*ProductReport, error) {
	if o.Repetitions == 0 {
		o.Repetitions = Repetitions
	}
	for _, s := range o.Shapes {
		if err := fits(s.String(), float64(s.bytes()), o.Memory); err != nil {
			return nil, err
		}
	}
	report := &ProductReport{}
	for _, s := range o.Shapes {
		for _, threads := range o.Threads {
			p, level, err := measureProduct(ctx, o, s, threads)
			if err != nil {
				return nil, fmt.Errorf("%s on %d threads: %w", s, threads, err)
			}
			report.Level = level
			report.Results = append(report.Results, p)
		}
	}
	return report, nil
}

func measureProduct(ctx context.Context, o ProductOptions, s Shape, threads int) (p Product, level string, err error) {
	r, err := newRig(o.Level, s.dtype(), threads)
	if err != nil {
		return p, "", err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	a, b, c := r.floats(s.M*s.K), r.floats(s.K*s.N), r.room(s.M*s.N)
	t, err := r.time(ctx, o.Repetitions, func(k device.Kernels) {
		k.MatMul(c, a, b, device.MatMul{M: s.M, N: s.N, K: s.K, TransA: s.TransA, TransB: s.TransB})
	})
	if err != nil {
		return p, "", err
	}
	seconds := t.seconds[0]
	return Product{
		Shape: s.String(), M: s.M, N: s.N, K: s.K, TransA: s.TransA, TransB: s.TransB, Type: s.dtype().String(),
		Threads: threads, Repetitions: o.Repetitions,
		Seconds: seconds, GFLOPS: s.flop() / seconds / 1e9,
		PeakGFLOPS: t.peak / 1e9, PeakShare: share(s.flop()/seconds, t.peak),
		Bytes: s.bytes(), GBPerSecond: float64(s.bytes()) / seconds / 1e9,
	}, r.device.Level().String(), nil
}

// Print writes the report as a table.
func (r *ProductReport) Print(out io.Writer) error {
	t := newTable(out, "shape", "threads", "ms", "GFLOP/s", "peak", "share", "MB", "GB/s")
	for _, p := range r.Results {
		t.row(p.Shape, p.Threads, milliseconds(p.Seconds), oneDigit(p.GFLOPS), known(p.PeakGFLOPS), percent(p.PeakShare), megabytes(p.Bytes), oneDigit(p.GBPerSecond))
	}
	t.note("level %s; medians of %d repetitions; the peak is a loop of fused multiply-adds of that level and type on as many threads in the same run", r.Level, r.repetitions())
	return t.flush()
}

func (r *ProductReport) repetitions() int {
	if len(r.Results) == 0 {
		return 0
	}
	return r.Results[0].Repetitions
}
