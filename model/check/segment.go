package check

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/model"
)

// Options are the shape and the random numbers of the call that is checked.
type Options struct {
	Rows, Context int
	// Vocab is the number of tokens, for segments that read tokens or targets.
	Vocab int
	Layer int
	Seed  uint64
}

const (
	// step is the half-width h of a central difference; its error is of order h^2 plus 1e-16/h.
	step = 1e-5
	// tolerance is absolute below 1 and relative above.
	tolerance = 1e-7
	// lossScale stands for 1 / tokens of the batch.
	lossScale = 0.7
)

// Segment checks the segment as the package comment says. The error names the first number that is wrong.
func Segment(s model.Segment, o Options) (err error) {
	d := cpu.New(cpu.Options{Float: device.F64, Poison: true})
	defer func() { err = errors.Join(err, d.Close()) }()
	stream, err := d.OpenStream("check", 1)
	if err != nil {
		return err
	}
	b := &bench{device: d, stream: stream, segment: s, spec: s.Spec(), options: o}
	defer b.release()
	if err := b.allocate(); err != nil {
		return err
	}
	b.fill()

	first, err := b.all()
	if err != nil {
		return err
	}
	dIn, grads := floats(b.call.DIn), floats(b.call.Grads)
	for i, p := range b.spec.In {
		if err := b.compare("port "+p.Name, b.call.In[i], dIn[i]); err != nil {
			return err
		}
	}
	for i, p := range b.spec.Params {
		if err := b.compare("parameter "+p.Name, b.call.Params[i], grads[i]); err != nil {
			return err
		}
	}
	again, err := b.all()
	if err == nil && !bytes.Equal(again, first) {
		err = fmt.Errorf("segment %s: the same call gives other bits the second time", b.spec.Name)
	}
	return err
}

// bench is a segment and one call of it with all of its memory.
type bench struct {
	device  *cpu.Device
	stream  device.Stream
	segment model.Segment
	spec    model.Spec
	options Options
	call    *model.Call
	// weigh are the derivatives of the number that is checked, sum(weigh * out), by Out.
	weigh [][]float64
	held  []device.Slice
}

func (b *bench) release() {
	for _, s := range b.held {
		s.Release()
	}
}

func (b *bench) allocate() error {
	o, sp := b.options, b.spec
	account := device.NewAccount("check", 0)
	var failed error
	alloc := func(t device.DType, n int) device.Slice {
		s, err := b.device.Alloc(account, device.Workspace, t, n)
		if err != nil {
			failed = err
			return device.Slice{}
		}
		b.held = append(b.held, s)
		return s
	}
	ports := func(list []model.Port) (out []device.Slice) {
		for _, p := range list {
			out = append(out, alloc(device.F64, p.Len(o.Rows, o.Context)))
		}
		return out
	}
	c := &model.Call{Rows: o.Rows, Context: o.Context, Seed: o.Seed, Step: 3, Sample: 11, Layer: o.Layer, Training: true, LossScale: lossScale,
		In: ports(sp.In), DIn: ports(sp.In), Out: ports(sp.Out), DOut: ports(sp.Out), Saved: ports(sp.Saved), Stash: ports(sp.Stash),
		Work: alloc(device.F64, model.Scratch(sp.Work, o.Rows, o.Context)), Sums: alloc(device.F64, model.Scratch(sp.Sums, o.Rows, o.Context))}
	for _, p := range sp.Params {
		c.Params = append(c.Params, alloc(device.F64, p.Len()))
		c.Grads = append(c.Grads, alloc(device.F64, p.Len()))
	}
	if sp.Tokens {
		c.Tokens = alloc(device.I32, o.Rows*o.Context)
	}
	if sp.Targets {
		c.Targets = alloc(device.I32, o.Rows*o.Context)
	}
	b.call = c
	return failed
}

// fill writes random inputs: parameters in [-0.5, 0.5), around 1 where they start as 1, and ports in [-1, 1).
func (b *bench) fill() {
	c := b.call
	for i, p := range b.spec.Params {
		base := 0.0
		if p.Init.Kind == model.Ones {
			base = 1
		}
		copy(cpu.Float64s(c.Params[i]), b.uniform(p.Name, c.Params[i].Len, base-0.5, base+0.5))
	}
	for i, p := range b.spec.In {
		copy(cpu.Float64s(c.In[i]), b.uniform("in "+p.Name, c.In[i].Len, -1, 1))
	}
	for i, p := range b.spec.Out {
		w := b.uniform("out "+p.Name, c.Out[i].Len, -1, 1)
		if p == (model.Port{Name: "loss", PerToken: 1, Float: true}) {
			// The gradient starts here: it is LossScale for every token, and DOut is not read.
			for j := range w {
				w[j] = lossScale
			}
			poison(c.DOut[i])
		} else {
			copy(cpu.Float64s(c.DOut[i]), w)
		}
		b.weigh = append(b.weigh, w)
	}
	for name, s := range map[string]device.Slice{"tokens": c.Tokens, "targets": c.Targets} {
		if !s.IsZero() {
			for i, v := range b.uniform(name, s.Len, 0, float64(b.options.Vocab)) {
				cpu.Int32s(s)[i] = int32(v)
			}
		}
	}
}

func (b *bench) uniform(name string, n int, lo, hi float64) []float64 {
	key := random.Key(b.options.Seed, random.String(name))
	v := make([]float64, n)
	for i := range v {
		v[i] = lo + (hi-lo)*random.Uniform(key, uint64(i))
	}
	return v
}

// all runs the three phases and returns all that they wrote.
func (b *bench) all() ([]byte, error) {
	c := b.call
	for p := Forward; p <= BackwardWeight; p++ {
		if err := Run(b.stream, b.segment, c, p); err != nil {
			return nil, err
		}
	}
	return Bits(slices.Concat(c.Out, c.Saved, c.DIn, c.Stash, c.Grads)...), nil
}

// value is sum(weigh * out), the number whose derivatives are checked.
func (b *bench) value() (float64, error) {
	err := Run(b.stream, b.segment, b.call, Forward)
	var sum float64
	for i, out := range b.call.Out {
		for j, v := range cpu.Float64s(out) {
			sum += v * b.weigh[i][j]
		}
	}
	return sum, err
}

// compare holds got to the central differences by the elements of x.
func (b *bench) compare(what string, x device.Slice, got []float64) error {
	host := cpu.Float64s(x)
	for i, at := range host {
		host[i] = at + step
		above, err := b.value()
		if err != nil {
			return err
		}
		host[i] = at - step
		below, err := b.value()
		if err != nil {
			return err
		}
		host[i] = at
		want := (above - below) / (2 * step)
		if !(math.Abs(got[i]-want) <= tolerance*max(1, math.Abs(want))) {
			return fmt.Errorf("segment %s: the gradient of %s, element %d, is %.12g; the central difference is %.12g", b.spec.Name, what, i, got[i], want)
		}
	}
	return nil
}

func floats(list []device.Slice) (out [][]float64) {
	for _, s := range list {
		out = append(out, slices.Clone(cpu.Float64s(s)))
	}
	return out
}
