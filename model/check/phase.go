package check

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
)

// Phase is one of the three methods of a segment.
type Phase int

const (
	Forward Phase = iota
	BackwardInput
	BackwardWeight
)

func (p Phase) String() string {
	return [...]string{"forward", "backward-input", "backward-weight"}[p]
}

// Run runs one phase of a call on a stream of a device whose memory the CPU can address, and waits
// for it. The segment gets only the slices of that phase. What it has to write is NaN before; an error says that it
// changed what it may only read, or panicked.
func Run(stream device.Stream, s model.Segment, c *model.Call, p Phase) error {
	part := *c
	read := slices.Concat(c.In, c.Params)
	var write []device.Slice
	for _, w := range []device.Slice{c.Work, c.Sums} {
		if !w.IsZero() {
			write = append(write, w)
		}
	}
	switch p {
	case Forward:
		part.DOut, part.DIn, part.Stash, part.Grads = nil, nil, nil, nil
		write = slices.Concat(write, c.Out, c.Saved)
	case BackwardInput:
		part.Grads = nil
		read = slices.Concat(read, c.Out, c.Saved, c.DOut)
		write = slices.Concat(write, c.DIn, c.Stash)
	case BackwardWeight:
		part.DIn = nil
		read = slices.Concat(read, c.Out, c.Saved, c.DOut, c.Stash)
		write = slices.Concat(write, c.Grads)
	}
	if !c.Tokens.IsZero() {
		read = append(read, c.Tokens)
	}
	if !c.Targets.IsZero() {
		read = append(read, c.Targets)
	}
	for _, w := range write {
		poison(w)
	}
	before := Bits(read...)
	done := make(chan error, 1)
	stream.Do(func(k device.Kernels) error {
		switch p {
		case Forward:
			s.Forward(k, &part)
		case BackwardInput:
			s.BackwardInput(k, &part)
		case BackwardWeight:
			s.BackwardWeight(k, &part)
		}
		return nil
	}, func(err error) { done <- err })
	if err := <-done; err != nil {
		return fmt.Errorf("segment %s, %s: %w", s.Spec().Name, p, err)
	}
	if !bytes.Equal(Bits(read...), before) {
		return fmt.Errorf("segment %s, %s: writes what it may only read", s.Spec().Name, p)
	}
	return nil
}

// Bits are the contents of slices, one after the other.
func Bits(list ...device.Slice) []byte {
	var out []byte
	for _, s := range list {
		out = append(out, s.HostBytes()...)
	}
	return out
}

// poison makes the contents NaN: all bits set.
func poison(s device.Slice) {
	h := s.HostBytes()
	for i := range h {
		h[i] = 0xff
	}
}
