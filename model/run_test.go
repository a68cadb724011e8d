package model_test

import (
	"testing"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/model/check"
)

// bench is a device with one stream and memory that is full of NaN until it is written.
type bench struct {
	t       testing.TB
	device  device.Device
	stream  device.Stream
	account *device.Account
}

func newBench(t testing.TB, float device.DType) *bench {
	t.Helper()
	d := cpu.New(cpu.Options{Float: float, Poison: true})
	s, err := d.OpenStream(t.Name(), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bench{t, d, s, device.NewAccount(t.Name(), 0)}
}

// do runs work on the stream and waits for it.
func (b *bench) do(work func(k device.Kernels)) {
	b.t.Helper()
	done := make(chan error, 1)
	b.stream.Do(func(k device.Kernels) error { work(k); return nil }, func(err error) { done <- err })
	if err := <-done; err != nil {
		if p, ok := err.(*device.Panic); ok {
			b.t.Fatalf("%v\n%s", err, p.Stack)
		}
		b.t.Fatal(err)
	}
}

// run runs one phase of a segment.
func (b *bench) run(s model.Segment, c *model.Call, p check.Phase) {
	b.t.Helper()
	if err := check.Run(b.stream, s, c, p); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) alloc(n int) device.Slice { return b.allocAs(b.device.Float(), n) }

func (b *bench) allocAs(typ device.DType, n int) device.Slice {
	b.t.Helper()
	s, err := b.device.Alloc(b.account, device.Activations, typ, n)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(s.Release)
	return s
}

func (b *bench) allocPorts(ports []model.Port, rows, context int) []device.Slice {
	b.t.Helper()
	out := make([]device.Slice, len(ports))
	for i, p := range ports {
		out[i] = b.alloc(p.Len(rows, context))
	}
	return out
}

func (b *bench) tokens(v []int32) device.Slice {
	s := b.allocAs(device.I32, len(v))
	copy(cpu.Int32s(s), v)
	return s
}

// set and get move numbers between the test and a slice of the device's Float type.
func set(s device.Slice, v []float64) {
	if s.Type == device.F64 {
		copy(cpu.Float64s(s), v)
		return
	}
	for i, d := 0, cpu.Float32s(s); i < len(d); i++ {
		d[i] = float32(v[i])
	}
}

func get(s device.Slice) []float64 {
	v := make([]float64, s.Len)
	if s.Type == device.F64 {
		copy(v, cpu.Float64s(s))
		return v
	}
	for i, f := range cpu.Float32s(s) {
		v[i] = float64(f)
	}
	return v
}

// whole runs a model in one piece: every micro-batch through all segments.
type whole struct {
	*bench
	m      *model.Model
	params []device.Slice   // by bucket
	grads  [][]device.Slice // by bucket and use
	calls  []*model.Call    // by segment, over all layers
	phases []model.Segment
}

// batch is a micro-batch.
type batch struct {
	tokens, targets [][]int
	sample          int
	step            int64
	training        bool
}

const seed = 42

func newWhole(b *bench, m *model.Model, parameters map[string][]float64) *whole {
	w := &whole{bench: b, m: m}
	for _, bucket := range m.Buckets() {
		flat := b.alloc(bucket.Len)
		for i, p := range bucket.Params {
			set(flat.Sub(bucket.Offsets[i], p.Len()), parameters[p.Name])
		}
		w.params = append(w.params, flat)
		var uses []device.Slice
		for range bucket.Uses {
			uses = append(uses, b.alloc(bucket.Len))
		}
		w.grads = append(w.grads, uses)
	}
	return w
}

// forward runs the micro-batch and returns the loss of every token.
func (w *whole) forward(x batch) [][]float64 {
	w.t.Helper()
	rows, context := len(x.tokens), len(x.tokens[0])
	tokens, targets := w.tokens(flatten(x.tokens)), w.tokens(flatten(x.targets))
	w.calls, w.phases = nil, nil
	var out, dOut []device.Slice
	for li, l := range w.m.Layers {
		for si, s := range l.Segments {
			sp := s.Spec()
			c := &model.Call{Rows: rows, Context: context, Seed: seed, Step: x.step, Sample: x.sample, Layer: li, Training: x.training,
				LossScale: 1 / float64(rows*context), In: out, DIn: dOut,
				Out: w.allocPorts(sp.Out, rows, context), DOut: w.allocPorts(sp.Out, rows, context),
				Saved: w.allocPorts(sp.Saved, rows, context), Stash: w.allocPorts(sp.Stash, rows, context),
				Work: w.alloc(model.Scratch(sp.Work, rows, context)), Sums: w.alloc(model.Scratch(sp.Sums, rows, context))}
			if sp.Tokens {
				c.Tokens = tokens
			}
			if sp.Targets {
				c.Targets = targets
			}
			for _, p := range w.m.Places(li, si) {
				c.Params = append(c.Params, w.params[p.Bucket].Sub(p.Offset, p.Len))
				c.Grads = append(c.Grads, w.grads[p.Bucket][p.Use].Sub(p.Offset, p.Len))
			}
			w.run(s, c, check.Forward)
			w.calls, w.phases = append(w.calls, c), append(w.phases, s)
			out, dOut = c.Out, c.DOut
		}
	}
	flat := get(out[0])
	losses := make([][]float64, rows)
	for i := range losses {
		losses[i] = flat[i*context : (i+1)*context]
	}
	return losses
}

// backward runs both backward phases of what forward ran: first all input gradients, then all weight gradients.
func (w *whole) backward() {
	w.t.Helper()
	for i := len(w.calls) - 1; i >= 0; i-- {
		w.run(w.phases[i], w.calls[i], check.BackwardInput)
	}
	for i := range w.calls {
		w.run(w.phases[i], w.calls[i], check.BackwardWeight)
	}
}

// gradients are the gradients by parameter, uses added up.
func (w *whole) gradients() map[string][]float64 {
	out := map[string][]float64{}
	for i, b := range w.m.Buckets() {
		for j, p := range b.Params {
			sum := make([]float64, p.Len())
			for _, use := range w.grads[i] {
				for e, v := range get(use.Sub(b.Offsets[j], p.Len())) {
					sum[e] += v
				}
			}
			out[p.Name] = sum
		}
	}
	return out
}

// gradientBits are the exact bits of all gradients.
func (w *whole) gradientBits() string {
	var out string
	for _, uses := range w.grads {
		out += string(check.Bits(uses...))
	}
	return out
}

func flatten(rows [][]int) []int32 {
	var out []int32
	for _, r := range rows {
		for _, v := range r {
			out = append(out, int32(v))
		}
	}
	return out
}
