package stage

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
)

// Chunk runs consecutive layers of a model. It is used on one stream at a time.
type Chunk struct {
	weights  *Weights
	layers   plan.Range
	segments []segment
	last     bool // it ends with the loss
}

type segment struct {
	model.Segment
	spec   model.Spec
	layer  int
	places []model.Place
	params []device.Slice
}

// MicroBatch is what a chunk is run on. The fields are those of model.Call.
type MicroBatch struct {
	Rows, Context   int
	Seed            uint64
	Step            int64
	Sample          int
	Training        bool
	LossScale       float64
	Tokens, Targets device.Slice // I32 [rows*context]; zero where no layer of the chunk reads them
}

// NewChunk returns the chunk of some layers, which must be among those of w.
func NewChunk(w *Weights, layers plan.Range) *Chunk {
	c := &Chunk{weights: w, layers: layers, last: layers.Hi == len(w.model.Layers)}
	for l := layers.Lo; l < layers.Hi; l++ {
		for i, s := range w.model.Layers[l].Segments {
			places := w.model.Places(l, i)
			c.segments = append(c.segments, segment{s, s.Spec(), l, places, w.params(places)})
		}
	}
	return c
}

// Tape is what the passes of one micro-batch leave for those that follow.
type Tape struct {
	batch MicroBatch
	// input is what the first segment reads; records[i].out is what segment i+1 reads.
	input   []device.Slice
	records []record
}

type record struct {
	out, saved  []device.Slice
	dout, stash []device.Slice
}

func (t *Tape) in(i int) []device.Slice {
	if i == 0 {
		return t.input
	}
	return t.records[i-1].out
}

// ReleaseSaved gives back what Forward left.
func (t *Tape) ReleaseSaved() {
	release(t.input)
	release(some(t.batch.Tokens))
	release(some(t.batch.Targets))
	t.input, t.batch.Tokens, t.batch.Targets = nil, device.Slice{}, device.Slice{}
	for i := range t.records {
		r := &t.records[i]
		release(r.out)
		release(r.saved)
		r.out, r.saved = nil, nil
	}
}

// ReleaseStash gives back what BackwardInput left.
func (t *Tape) ReleaseStash() {
	for i := range t.records {
		r := &t.records[i]
		release(r.dout)
		release(r.stash)
		r.dout, r.stash = nil, nil
	}
}

// Forward runs the chunk on in, the input of its first layer (zero for layer 0). The caller owns
// the output, and the tape, which is nil unless b.Training. The output of the last layer is the
// loss of every token.
func (c *Chunk) Forward(k device.Kernels, b MicroBatch, in device.Slice) (device.Slice, *Tape, error) {
	return c.forward(k, "", b, in)
}

// ForwardTo runs the chunk up to the segment that writes a port, and returns that output. It keeps nothing.
func (c *Chunk) ForwardTo(k device.Kernels, port string, b MicroBatch, in device.Slice) (device.Slice, error) {
	b.Training = false
	out, _, err := c.forward(k, port, b, in)
	return out, err
}

func (c *Chunk) forward(k device.Kernels, port string, b MicroBatch, in device.Slice) (device.Slice, *Tape, error) {
	t := &Tape{batch: b, input: some(in), records: make([]record, 0, len(c.segments))}
	retain(t.input)
	retain(some(b.Tokens))
	retain(some(b.Targets))
	fail := func(err error) (device.Slice, *Tape, error) {
		t.ReleaseSaved()
		return device.Slice{}, nil, err
	}
	for i := range c.segments {
		s := &c.segments[i]
		var r record
		var err error
		label := device.Activations
		if i == len(c.segments)-1 {
			label = device.Messages
		}
		if r.out, err = c.ports(label, s.spec.Out, b); err == nil {
			r.saved, err = c.ports(device.Activations, s.spec.Saved, b)
		}
		t.records = append(t.records, r)
		if err != nil {
			return fail(err)
		}
		call := s.call(b)
		call.In, call.Out, call.Saved = t.in(i), r.out, r.saved
		if err := c.run(k, s, call, s.Forward); err != nil {
			return fail(err)
		}
		if !b.Training {
			release(r.saved)
			t.records[i].saved = nil
			release(t.in(i))
			if i == 0 {
				t.input = nil
			} else {
				t.records[i-1].out = nil
			}
		}
		if j := find(s.spec.Out, port); port != "" && j >= 0 {
			return c.take(t, i, j), nil, nil
		}
	}
	if port != "" {
		return fail(fmt.Errorf("no segment of layers %d..%d writes a port %q", c.layers.Lo, c.layers.Hi-1, port))
	}
	if !b.Training {
		return c.take(t, len(c.segments)-1, 0), nil, nil
	}
	out := t.records[len(c.segments)-1].out[0]
	out.Retain()
	return out, t, nil
}

// take returns output j of segment i and gives back the rest of a tape.
func (c *Chunk) take(t *Tape, i, j int) device.Slice {
	out := t.records[i].out[j]
	out.Retain()
	t.ReleaseSaved()
	return out
}

// BackwardInput runs the chunk backwards from the gradient of its output (zero for the last layer)
// and returns the gradient of its input (zero for layer 0), which the caller owns.
func (c *Chunk) BackwardInput(k device.Kernels, t *Tape, dout device.Slice) (device.Slice, error) {
	grads := some(dout)
	retain(grads)
	if c.last {
		grads = make([]device.Slice, len(c.segments[len(c.segments)-1].spec.Out))
	}
	for i := len(c.segments) - 1; i >= 0; i-- {
		s, r := &c.segments[i], &t.records[i]
		r.dout = grads
		var err error
		if r.stash, err = c.ports(device.Activations, s.spec.Stash, t.batch); err != nil {
			return device.Slice{}, err
		}
		label := device.Activations
		if i == 0 {
			label = device.Messages
		}
		if grads, err = c.ports(label, s.spec.In, t.batch); err != nil {
			return device.Slice{}, err
		}
		call := s.call(t.batch)
		call.In, call.Out, call.Saved = t.in(i), r.out, r.saved
		call.DOut, call.DIn, call.Stash = r.dout, grads, r.stash
		if err := c.run(k, s, call, s.BackwardInput); err != nil {
			release(grads)
			return device.Slice{}, err
		}
	}
	if len(grads) == 0 {
		return device.Slice{}, nil
	}
	return grads[0], nil
}

// BackwardWeight writes the gradients of all parameters of the chunk. grads is the flat gradient of
// a use of a bucket.
func (c *Chunk) BackwardWeight(k device.Kernels, t *Tape, grads func(bucket, use int) device.Slice) error {
	for i := range c.segments {
		s, r := &c.segments[i], &t.records[i]
		call := s.call(t.batch)
		call.In, call.Out, call.Saved = t.in(i), r.out, r.saved
		call.DOut, call.Stash = r.dout, r.stash
		call.Grads = make([]device.Slice, len(s.places))
		for j, p := range s.places {
			call.Grads[j] = grads(p.Bucket, p.Use).Sub(p.Offset, p.Len)
		}
		if err := c.run(k, s, call, s.BackwardWeight); err != nil {
			return err
		}
	}
	return nil
}

func (s *segment) call(b MicroBatch) *model.Call {
	call := &model.Call{
		Rows: b.Rows, Context: b.Context,
		Seed: b.Seed, Step: b.Step, Sample: b.Sample, Layer: s.layer,
		Training: b.Training, LossScale: b.LossScale,
		Params: s.params,
	}
	if s.spec.Tokens {
		call.Tokens = b.Tokens
	}
	if s.spec.Targets {
		call.Targets = b.Targets
	}
	return call
}

// run makes one call with the scratch memory that the segment asks for.
func (c *Chunk) run(k device.Kernels, s *segment, call *model.Call, method func(device.Kernels, *model.Call)) error {
	if n := s.spec.Work(call.Rows, call.Context); n > 0 {
		w, err := c.alloc(device.Workspace, n)
		if err != nil {
			return fmt.Errorf("segment %s of layer %d: %w", s.spec.Name, s.layer, err)
		}
		defer w.Release()
		call.Work = w
	}
	method(k, call)
	return nil
}

// ports allocates tensors for a micro-batch. What leaves the chunk is charged as Messages: it lives
// in the outbox until the commit.
func (c *Chunk) ports(label device.Label, ports []model.Port, b MicroBatch) ([]device.Slice, error) {
	out := make([]device.Slice, 0, len(ports))
	for _, p := range ports {
		x, err := c.alloc(label, p.Len(b.Rows, b.Context))
		if err != nil {
			release(out)
			return nil, fmt.Errorf("tensor %s of %d rows: %w", p.Name, b.Rows, err)
		}
		out = append(out, x)
	}
	return out, nil
}

func (c *Chunk) alloc(l device.Label, n int) (device.Slice, error) {
	d := c.weights.device
	return d.Alloc(c.weights.account, l, d.Float(), n)
}

func find(ports []model.Port, name string) int {
	for i, p := range ports {
		if p.Name == name {
			return i
		}
	}
	return -1
}

// some is the list of s, empty for the zero Slice.
func some(s device.Slice) []device.Slice {
	if s.IsZero() {
		return nil
	}
	return []device.Slice{s}
}

func retain(list []device.Slice) {
	for _, s := range list {
		s.Retain()
	}
}

// release gives back a list of tensors; zero Slices stand for none.
func release(list []device.Slice) {
	for _, s := range list {
		if !s.IsZero() {
			s.Release()
		}
	}
}
