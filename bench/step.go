package bench

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/supervisor"
)

// StepOptions is the GPT that is trained, the batch of a step, and the layout.
type StepOptions struct {
	Layers, Width, Heads, Context, Vocab int
	// Batch is the sequences of a step, MicroBatch those that run together; 0 stands for the whole batch.
	Batch, MicroBatch int
	// Threads of the process; 0 stands for all cores.
	Threads int
	// Steps are measured, after Warmup steps that are not.
	Steps, Warmup  int
	Pipeline, Data int
	Schedule       string
	// Precision is f32 or bf16, as in a job; the empty one is f32.
	Precision string
	Level     cpu.Level
	// Memory is the bytes that may be used; 0 where nobody knows.
	Memory uint64
}

// StepReport is what was measured. Seconds are medians over the measured steps.
type StepReport struct {
	Layers     int    `json:"layers"`
	Width      int    `json:"width"`
	Heads      int    `json:"heads"`
	Context    int    `json:"context"`
	Vocab      int    `json:"vocab"`
	Batch      int    `json:"batch"`
	MicroBatch int    `json:"micro_batch"`
	Threads    int    `json:"threads"`
	Pipeline   int    `json:"pipeline"`
	Data       int    `json:"data"`
	Schedule   string `json:"schedule"`
	Precision  string `json:"precision"`
	Steps      int    `json:"steps"`
	Warmup     int    `json:"warmup"`
	Level      string `json:"level"`

	Parameters      int     `json:"parameters"`
	Tokens          int     `json:"tokens"`
	StepSeconds     float64 `json:"step_seconds"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	// FLOP of a step are 6 P tokens + 12 L d T tokens: P parameters, L layers of width d, context T.
	FLOP       float64 `json:"flop"`
	GFLOPS     float64 `json:"gflops"`
	PeakGFLOPS float64 `json:"peak_gflops"`
	PeakShare  float64 `json:"peak_share"`
	// Outside is the share of the step in which no operation of any actor ran; null where actors work
	// at the same time.
	Outside *float64 `json:"outside_kernels"`
	// Bubble is the idle share that was measured, and PlannedBubble that of the schedule; both as parts of the busiest stage's work.
	Bubble        float64 `json:"bubble"`
	PlannedBubble float64 `json:"planned_bubble"`
	// WithoutBubble is the time of a step less the idle share of the schedule.
	WithoutBubble float64 `json:"step_seconds_without_bubble"`
	// HeapBytes and HeapObjects are what a step takes from the Go heap; null where there is one step in all, which makes what later
	// ones use again.
	HeapBytes   *float64 `json:"heap_bytes_per_step"`
	HeapObjects *float64 `json:"heap_objects_per_step"`
	// PeakBytes is the most that the accounts of all actors held.
	PeakBytes int64   `json:"peak_bytes"`
	LossFirst float64 `json:"loss_first"`
	LossLast  float64 `json:"loss_last"`
}

// job is the job of the options: AdamW and clipping as in training, nothing held out, nothing saved.
func (o StepOptions) job() (*plan.Job, error) {
	j := plan.Defaults()
	j.Name = "bench"
	j.Model.Layers, j.Model.Width, j.Model.Heads, j.Model.Context = o.Layers, o.Width, o.Heads, o.Context
	j.Data.Text = "made up" // Validate wants one; the source is noise
	j.Train.Steps = int64(o.Warmup + o.Steps)
	j.Train.Batch, j.Train.MicroBatch, j.Train.Threads = o.Batch, o.MicroBatch, o.Threads
	j.Train.Evaluate.Batch = 0
	j.Train.Optimizer.WeightDecay = 0.01
	j.Layout.Pipeline, j.Layout.Data = o.Pipeline, o.Data
	if o.Precision != "" {
		j.Train.Precision = o.Precision
	}
	if o.Schedule != "" {
		j.Layout.Schedule = o.Schedule
	}
	return j, j.Validate()
}

// check fills in what the zero values stand for.
func (o *StepOptions) check() error {
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if o.MicroBatch == 0 {
		o.MicroBatch = o.Batch
	}
	if o.Pipeline == 0 {
		o.Pipeline = 1
	}
	if o.Data == 0 {
		o.Data = 1
	}
	return checkSizes(size{"vocab", o.Vocab, 2, maxDimension}, size{"steps", o.Steps, 1, maxDimension}, size{"warmup", o.Warmup, 0, maxDimension})
}

// Step trains a GPT on made-up tokens in this process, as `troupe train` does, and measures its steps. The error
// is an ErrOptions where the options are not legal.
func Step(ctx context.Context, o StepOptions) (*StepReport, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	job, err := o.job()
	if err != nil {
		return nil, ErrOptions{err}
	}
	m, err := model.Build(job.Model.Kind, model.Config{Layers: o.Layers, Width: o.Width, Heads: o.Heads, Context: o.Context, Vocab: o.Vocab})
	if err != nil {
		return nil, ErrOptions{err}
	}
	// Weights, gradients and moments alone: a plan of what is far too large takes a while.
	if err := fits("the model", 16*float64(m.Len()), o.Memory); err != nil {
		return nil, err
	}
	p, err := plan.New(job, m, plan.Options{})
	if err != nil {
		return nil, ErrOptions{err}
	}
	if err := fits("the step", need(p), o.Memory); err != nil {
		return nil, err
	}
	d := cpu.New(cpu.Options{Float: device.F32, Level: o.Level})
	defer d.Close()
	stored := job.Train.Stored(device.F32) // products are made of it
	peaks := samplePeak(o.Threads, stored, d.Level())
	var w watch
	result, err := supervisor.Run(ctx, job, supervisor.WithModel(m), supervisor.WithData(noise{o.Vocab}), supervisor.WithDevice(d),
		supervisor.WithProgress(w.progress(o.Warmup)))
	if err != nil {
		return nil, err
	}
	if len(w.steps) < o.Steps {
		return nil, fmt.Errorf("%d of %d steps were measured: %w", len(w.steps), o.Steps, context.Cause(ctx))
	}
	peaks = append(peaks, samplePeak(o.Threads, stored, d.Level())...)
	return o.report(p, d, result, &w, median(peaks)), nil
}

// need is the memory that the plan expects its actors to hold.
func need(p *plan.Plan) (sum float64) {
	for _, a := range p.Predicted.Actors {
		sum += float64(a.Peak())
	}
	return sum
}

// samplePeak takes some samples of the peak.
func samplePeak(threads int, t device.DType, level cpu.Level) []float64 {
	peaks := make([]float64, 5)
	for i := range peaks {
		peaks[i] = peak(threads, t, level)
	}
	return peaks
}

// watch takes down the measured steps.
type watch struct {
	steps       []supervisor.StepDone
	first, last runtime.MemStats // when step from, and then step to, had been committed
	from, to    int64
}

// progress drops the first warmup steps. The first step's start is that of the run.
func (w *watch) progress(warmup int) func(supervisor.Progress) {
	return func(p supervisor.Progress) {
		if p.Step == nil {
			return
		}
		if p.Step.Step > int64(warmup) {
			w.steps = append(w.steps, *p.Step)
		}
		if w.from == 0 && p.Step.Step >= int64(warmup) {
			w.from = p.Step.Step
			runtime.ReadMemStats(&w.first)
		}
		if p.Step.Step == p.Step.Of {
			w.to = p.Step.Step
			runtime.ReadMemStats(&w.last)
		}
	}
}

func (o StepOptions) report(p *plan.Plan, d *cpu.Device, r *supervisor.Result, w *watch, peak float64) *StepReport {
	seconds := medianOf(w.steps, func(s supervisor.StepDone) float64 { return s.Elapsed.Seconds() })
	tokens := o.Batch * o.Context
	flop := 6*float64(r.Parameters)*float64(tokens) + 12*float64(o.Layers)*float64(o.Width)*float64(o.Context)*float64(tokens)
	report := &StepReport{
		Layers: o.Layers, Width: o.Width, Heads: o.Heads, Context: o.Context, Vocab: o.Vocab,
		Batch: o.Batch, MicroBatch: o.MicroBatch, Threads: o.Threads, Pipeline: o.Pipeline, Data: o.Data, Schedule: p.Job.Layout.Schedule, Precision: p.Job.Train.Precision,
		Steps: o.Steps, Warmup: o.Warmup, Level: d.Level().String(),
		Parameters: r.Parameters, Tokens: tokens,
		StepSeconds: seconds, TokensPerSecond: float64(tokens) / seconds,
		FLOP: flop, GFLOPS: flop / seconds / 1e9, PeakGFLOPS: peak / 1e9, PeakShare: share(flop/seconds, peak),
		Bubble: medianOf(w.steps, func(s supervisor.StepDone) float64 {
			return share((s.Window - s.Busy).Seconds(), s.Busy.Seconds())
		}),
		PlannedBubble: p.Predicted.Bubble, WithoutBubble: seconds / (1 + p.Predicted.Bubble),
		LossFirst: *r.LossFirst, LossLast: *r.LossLast,
	}
	if o.Pipeline == 1 && o.Data == 1 {
		outside := medianOf(w.steps, func(s supervisor.StepDone) float64 { return 1 - s.Inside.Seconds()/s.Elapsed.Seconds() })
		outside = max(0, outside) // operations of stage, shard and trainer that overlap count twice
		report.Outside = &outside
	}
	if steps := float64(w.to - w.from); steps > 0 {
		objects, bytes := float64(w.last.Mallocs-w.first.Mallocs)/steps, float64(w.last.TotalAlloc-w.first.TotalAlloc)/steps
		report.HeapObjects, report.HeapBytes = &objects, &bytes
	}
	for _, n := range r.PeakBytes {
		report.PeakBytes += n
	}
	return report
}

func medianOf(steps []supervisor.StepDone, of func(supervisor.StepDone) float64) float64 {
	v := make([]float64, len(steps))
	for i, s := range steps {
		v[i] = of(s)
	}
	return median(v)
}

// Print writes the report as a table with one row.
func (r *StepReport) Print(out io.Writer) error {
	t := newTable(out, "layers", "width", "heads", "context", "batch", "vocab", "precision", "layout", "threads", "ms/step", "tokens/s", "GFLOP/s", "peak", "share", "outside", "bubble", "MB")
	outside := "-"
	if r.Outside != nil {
		outside = fmt.Sprintf("%.1f%%", 100**r.Outside)
	}
	t.row(r.Layers, r.Width, r.Heads, r.Context, fmt.Sprintf("%d/%d", r.Batch, r.MicroBatch), r.Vocab, r.Precision, fmt.Sprintf("p%d d%d", r.Pipeline, r.Data), r.Threads,
		milliseconds(r.StepSeconds), fmt.Sprintf("%.0f", r.TokensPerSecond), oneDigit(r.GFLOPS), known(r.PeakGFLOPS), percent(r.PeakShare), outside, percent(r.Bubble), megabytes(r.PeakBytes))
	t.note("%d parameters; level %s; median of %d steps after %d; the peak is a loop of fused multiply-adds of that level on %d threads before and after; outside is the share of a step in which no operation ran",
		r.Parameters, r.Level, r.Steps, r.Warmup, r.Threads)
	if r.PlannedBubble > 0 {
		t.note("the schedule idles %.3f of the busiest stage's work: %s ms without that", r.PlannedBubble, milliseconds(r.WithoutBubble))
	}
	if r.HeapObjects != nil {
		t.note("a step takes %.0f objects, %.0f bytes from the Go heap", *r.HeapObjects, *r.HeapBytes)
	}
	t.note("loss %.4f -> %.4f", r.LossFirst, r.LossLast)
	return t.flush()
}
