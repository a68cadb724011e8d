package stage

import (
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
)

// Tape is what the passes of one micro-batch leave for those that follow. It goes back to its chunk, to be
// used again, with the last of ReleaseSaved and ReleaseStash that there is something for.
type Tape struct {
	chunk          *Chunk
	batch          MicroBatch
	saved, stashed bool // Forward has left something; BackwardInput has
	// input is what the first segment reads, and din its gradient; records[i].out is what segment i+1 reads.
	input, din []device.Slice
	records    []record
	slices     []device.Slice // behind all of them
}

// record has the tensors of one segment, as many as its Spec says. The zero Slice stands for none.
type record struct {
	out, saved  []device.Slice
	dout, stash []device.Slice
}

// newTape makes an empty tape for the segments of a chunk.
func newTape(c *Chunk) *Tape {
	n := 2 * len(c.segments[0].spec.In)
	for i := range c.segments {
		s := &c.segments[i].spec
		n += 2*len(s.Out) + len(s.Saved) + len(s.Stash)
	}
	t := &Tape{chunk: c, records: make([]record, len(c.segments)), slices: make([]device.Slice, n)}
	rest := t.slices
	take := func(ports []model.Port) []device.Slice {
		list := rest[:len(ports):len(ports)]
		rest = rest[len(ports):]
		return list
	}
	t.input, t.din = take(c.segments[0].spec.In), take(c.segments[0].spec.In)
	for i := range c.segments {
		s := &c.segments[i].spec
		t.records[i] = record{out: take(s.Out), saved: take(s.Saved), dout: take(s.Out), stash: take(s.Stash)}
	}
	return t
}

// in is what segment i reads; dIn is where its gradient goes.
func (t *Tape) in(i int) []device.Slice {
	if i == 0 {
		return t.input
	}
	return t.records[i-1].out
}

func (t *Tape) dIn(i int) []device.Slice {
	if i == 0 {
		return t.din
	}
	return t.records[i-1].dout
}

// ReleaseSaved gives back what Forward left.
func (t *Tape) ReleaseSaved() {
	if !t.saved {
		return
	}
	t.saved = false
	release(t.input)
	releaseOne(&t.batch.Tokens)
	releaseOne(&t.batch.Targets)
	for i := range t.records {
		release(t.records[i].out)
		release(t.records[i].saved)
	}
	t.recycle()
}

// ReleaseStash gives back what BackwardInput left.
func (t *Tape) ReleaseStash() {
	if !t.stashed {
		return
	}
	t.stashed = false
	release(t.din)
	for i := range t.records {
		release(t.records[i].dout)
		release(t.records[i].stash)
	}
	t.recycle()
}

func (t *Tape) recycle() {
	if !t.saved && !t.stashed {
		t.chunk.free = append(t.chunk.free, t)
	}
}

// release gives back a list of tensors and empties it.
func release(list []device.Slice) {
	for i := range list {
		releaseOne(&list[i])
	}
}

func releaseOne(s *device.Slice) {
	if !s.IsZero() {
		s.Release()
		*s = device.Slice{}
	}
}

// retain puts another reference to s into a place.
func retain(place *device.Slice, s device.Slice) {
	if !s.IsZero() {
		s.Retain()
	}
	*place = s
}
