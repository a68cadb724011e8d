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

	// For a pass that allocates nothing on the Go heap: the call of the segment that runs, the gradients that it
	// writes, and tapes that hold nothing.
	call  model.Call
	grads []device.Slice
	free  []*Tape
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
	c := &Chunk{weights: w, layers: layers}
	for l := layers.Lo; l < layers.Hi; l++ {
		for i, s := range w.model.Layers[l].Segments {
			places := w.model.Places(l, i)
			c.segments = append(c.segments, segment{s, s.Spec(), l, places, w.params(places)})
		}
	}
	return c
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
	t := c.tape(b, in)
	fail := func(err error) (device.Slice, *Tape, error) {
		t.ReleaseSaved()
		return device.Slice{}, nil, err
	}
	last := len(c.segments) - 1
	for i := range c.segments {
		s, r := &c.segments[i], &t.records[i]
		label := device.Activations
		if i == last {
			label = device.Messages
		}
		if err := c.ports(r.out, label, s.spec.Out, b); err != nil {
			return fail(err)
		}
		if err := c.ports(r.saved, device.Activations, s.spec.Saved, b); err != nil {
			return fail(err)
		}
		call := c.begin(s, t, i)
		if err := c.run(k, s, call, forward); err != nil {
			return fail(err)
		}
		if !b.Training {
			release(r.saved)
			release(t.in(i))
		}
		if j := find(s.spec.Out, port); port != "" && j >= 0 {
			return t.take(i, j), nil, nil
		}
	}
	if port != "" {
		return fail(fmt.Errorf("no segment of layers %d..%d writes a port %q", c.layers.Lo, c.layers.Hi-1, port))
	}
	if !b.Training {
		return t.take(last, 0), nil, nil
	}
	out := t.records[last].out[0]
	out.Retain()
	return out, t, nil
}

// tape is one for a micro-batch, which holds a reference to what the batch brings.
func (c *Chunk) tape(b MicroBatch, in device.Slice) *Tape {
	var t *Tape
	if n := len(c.free); n > 0 {
		t, c.free = c.free[n-1], c.free[:n-1]
	} else {
		t = newTape(c)
	}
	t.batch, t.saved = b, true
	retain(&t.batch.Tokens, b.Tokens)
	retain(&t.batch.Targets, b.Targets)
	if len(t.input) > 0 {
		retain(&t.input[0], in)
	}
	return t
}

// take returns output j of segment i and gives back the rest of a tape.
func (t *Tape) take(i, j int) device.Slice {
	out := t.records[i].out[j]
	out.Retain()
	t.ReleaseSaved()
	return out
}

// BackwardInput runs the chunk backwards from the gradient of its output (zero for the last layer)
// and returns the gradient of its input (zero for layer 0), which the caller owns.
func (c *Chunk) BackwardInput(k device.Kernels, t *Tape, dout device.Slice) (device.Slice, error) {
	t.stashed = true
	last := len(c.segments) - 1
	retain(&t.records[last].dout[0], dout)
	for i := last; i >= 0; i-- {
		s, r := &c.segments[i], &t.records[i]
		if err := c.ports(r.stash, device.Activations, s.spec.Stash, t.batch); err != nil {
			return device.Slice{}, err
		}
		label := device.Activations
		if i == 0 {
			label = device.Messages
		}
		din := t.dIn(i)
		if err := c.ports(din, label, s.spec.In, t.batch); err != nil {
			return device.Slice{}, err
		}
		call := c.begin(s, t, i)
		call.DOut, call.DIn, call.Stash = r.dout, din, r.stash
		if err := c.run(k, s, call, backwardInput); err != nil {
			release(t.din)
			return device.Slice{}, err
		}
	}
	if len(t.din) == 0 {
		return device.Slice{}, nil
	}
	din := t.din[0]
	t.din[0] = device.Slice{}
	return din, nil
}

// BackwardWeight writes the gradients of all parameters of the chunk. grads is the flat gradient of
// a use of a bucket.
func (c *Chunk) BackwardWeight(k device.Kernels, t *Tape, grads func(bucket, use int) device.Slice) error {
	for i := range c.segments {
		s, r := &c.segments[i], &t.records[i]
		call := c.begin(s, t, i)
		call.DOut, call.Stash = r.dout, r.stash
		c.grads = c.grads[:0]
		for _, p := range s.places {
			c.grads = append(c.grads, grads(p.Bucket, p.Use).Sub(p.Offset, p.Len))
		}
		call.Grads = c.grads
		if err := c.run(k, s, call, backwardWeight); err != nil {
			return err
		}
	}
	return nil
}

// begin fills in the call of segment i with what all passes read. It is the chunk's own, and good until the next.
func (c *Chunk) begin(s *segment, t *Tape, i int) *model.Call {
	b := &t.batch
	c.call = model.Call{
		Rows: b.Rows, Context: b.Context,
		Seed: b.Seed, Step: b.Step, Sample: b.Sample, Layer: s.layer,
		Training: b.Training, LossScale: b.LossScale,
		Params: s.params,
		In:     t.in(i), Out: t.records[i].out, Saved: t.records[i].saved,
	}
	if s.spec.Tokens {
		c.call.Tokens = b.Tokens
	}
	if s.spec.Targets {
		c.call.Targets = b.Targets
	}
	return &c.call
}

type pass uint8

const (
	forward pass = iota
	backwardInput
	backwardWeight
)

// run makes one call with the scratch memory that the segment asks for.
func (c *Chunk) run(k device.Kernels, s *segment, call *model.Call, p pass) error {
	var err error
	if call.Work, err = c.scratch(s, c.weights.store, model.Scratch(s.spec.Work, call.Rows, call.Context)); err != nil {
		return err
	}
	defer giveBack(call.Work)
	if call.Sums, err = c.scratch(s, c.weights.device.Float(), model.Scratch(s.spec.Sums, call.Rows, call.Context)); err != nil {
		return err
	}
	defer giveBack(call.Sums)
	switch p {
	case forward:
		s.Forward(k, call)
	case backwardInput:
		s.BackwardInput(k, call)
	case backwardWeight:
		s.BackwardWeight(k, call)
	}
	return nil
}

// scratch is memory for one call, or the zero Slice for no elements.
func (c *Chunk) scratch(s *segment, t device.DType, n int) (device.Slice, error) {
	if n == 0 {
		return device.Slice{}, nil
	}
	w, err := c.weights.device.Alloc(c.weights.account, device.Workspace, t, n)
	if err != nil {
		return w, fmt.Errorf("segment %s of layer %d: %w", s.spec.Name, s.layer, err)
	}
	return w, nil
}

func giveBack(s device.Slice) {
	if !s.IsZero() {
		s.Release()
	}
}

// ports allocates tensors for a micro-batch; those that it could are in list when it fails. What
// leaves the chunk is charged as Messages: it lives in the outbox until the commit.
func (c *Chunk) ports(list []device.Slice, label device.Label, ports []model.Port, b MicroBatch) error {
	for i, p := range ports {
		t := c.weights.store
		if p.Float {
			t = c.weights.device.Float()
		}
		x, err := c.weights.device.Alloc(c.weights.account, label, t, p.Len(b.Rows, b.Context))
		if err != nil {
			return fmt.Errorf("tensor %s of %d rows: %w", p.Name, b.Rows, err)
		}
		list[i] = x
	}
	return nil
}

func find(ports []model.Port, name string) int {
	for i, p := range ports {
		if p.Name == name {
			return i
		}
	}
	return -1
}
