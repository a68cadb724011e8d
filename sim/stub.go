package sim

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// word is the payload of a stub: the hash of how it came to be.
type word uint64

func (w word) Bytes() int64 { return 8 }
func (w word) Retain()      {}
func (w word) Release()     {}

// View is that of some elements. It goes with plus, as the part of a sum is the sum of the parts.
func (w word) View(lo, n int) machine.Payload { return w * (digest("view", word(lo), word(n)) | 1) }

// plus stands for a sum in floating point: it depends on the order of its terms and on how they are put together.
func (w word) plus(upper word) word { return w*0x9e3779b97f4a7c15 + upper*0xc2b2ae3d27d4eb4f }

// Sum is a checksum.
func (w word) Sum() uint32 { return uint32(w>>32) ^ uint32(w) | 1 }

func digest(what string, words ...word) word {
	h := fnv.New64a()
	h.Write([]byte(what))
	var b [8]byte
	for _, w := range words {
		binary.LittleEndian.PutUint64(b[:], uint64(w))
		h.Write(b[:])
	}
	// FNV mixes its last bytes little.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return word(x ^ x>>33)
}

// states is the payload of a State: the words of the parts of a shard.
type states []word

func (s states) Bytes() int64 { return 8 * int64(len(s)) }
func (s states) Retain()      {}
func (s states) Release()     {}
func (s states) Sum() uint32  { return digest("states", s...).Sum() }

// stubBook is the book of a bench with stubs. The layout does not change between its runs.
type stubBook struct {
	disks *Disks
	step  int64
	state map[plan.ActorID]states
}

func (b *stubBook) begin(*plan.Plan) {}
func (b *stubBook) snapshot() int64  { return b.step }

func (b *stubBook) weights() string {
	var all []word
	for _, id := range slices.Sorted(maps.Keys(b.state)) {
		all = append(all, b.state[id]...)
	}
	return fmt.Sprintf("%016x", uint64(digest("weights", all...)))
}

func (b *stubBook) trainer(r *run, _ *device.Account) (executor, error) {
	return &stubTrainer{r, b}, nil
}

func (b *stubBook) actor(r *run, l Life) (Actor, error) {
	x := &stub{plan: r.plan, id: l.ID, memory: map[plan.Value]word{}}
	if r.config.Plant == ForgottenKey {
		x.key = word(l.Incarnation)
	}
	return Actor{Machine: machine.NewWalker(r.plan, l.ID, machine.Incarnation(l.Incarnation)), Executor: x}, nil
}

// hashOf is the word of an operation in a round with what it reads.
func hashOf(r plan.Round, op *plan.Op, in []machine.Payload) word {
	words := []word{word(r.Step), word(r.Phase), word(op.Micro), word(op.Bucket), word(op.Lo), word(op.Hi)}
	for _, p := range in {
		switch p := p.(type) {
		case word:
			words = append(words, p)
		case states:
			words = append(words, p...)
		}
	}
	return digest(op.Kind.String(), words...)
}

// outputs are a word for each value that an operation writes; nil for those that stay.
func outputs(op *plan.Op, h word) []machine.Payload {
	out := make([]machine.Payload, len(op.Writes))
	for i, v := range op.Writes {
		if !machine.Resident(v) {
			out[i] = digest("output", h, word(i))
		}
	}
	return out
}

// stub is the executor of a stage, shard or mirror that hashes. What an operation writes is a hash of all that it
// reads, of the parameters that are loaded, and of what stays inside; the state of a shard advances as the real one does.
type stub struct {
	plan *plan.Plan
	id   plan.ActorID
	key  word
	// memory has what stays inside a stage.
	memory map[plan.Value]word
	step   int64
	state  map[int]word // by bucket
	held   map[int]word
}

func (x *stub) Run(_ device.Kernels, r plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	switch op.Kind {
	case plan.Restore:
		x.restore(r, in)
		return x.publish(op, x.state), nil
	case plan.Update, plan.Hold:
		return x.hold(r, op, in)
	case plan.Advance:
		if x.step == r.Step-1 && len(x.held) == len(x.state) {
			x.step, x.state, x.held = r.Step, x.held, nil
		}
		if x.step != r.Step {
			return nil, fmt.Errorf("the state is that of step %d", x.step)
		}
		return x.publish(op, x.state), nil
	case plan.Collect, plan.Offer:
		var s states
		for _, b := range slices.Sorted(maps.Keys(x.state)) {
			s = append(s, x.state[b])
		}
		return []machine.Payload{s}, nil
	}
	switch op.Kind {
	case plan.Add:
		return []machine.Payload{in[0].(word).plus(in[1].(word))}, nil
	case plan.Reduce:
		h, err := reduce(op, in, len(x.plan.Train))
		return outputs(op, digest("reduce", h, word(r.Step), word(op.Bucket))), err
	}
	h := digest("life", hashOf(r, op, in), x.key)
	if op.Kind == plan.Load {
		// Loading is the same whoever it comes from and in whichever round: the parameters are those of the pieces.
		h = hashOf(plan.Round{}, op, in)
	}
	for _, v := range op.Reads {
		if machine.Resident(v) {
			h = digest("inside", h, x.memory[v])
		}
	}
	if x.id.Role() == "stage" && op.Kind != plan.Load {
		for b := range x.plan.Buckets {
			h = digest("parameters", h, x.memory[plan.Value{Kind: plan.Parameters, Index: b, Piece: -1}])
		}
	}
	for _, v := range op.Writes {
		if machine.Resident(v) {
			x.memory[v] = h
		}
	}
	return outputs(op, h), nil
}

// reduce finishes the tree of every use over n micro-batches, whatever nodes of it are there, and sums the uses.
func reduce(op *plan.Op, in []machine.Payload, n int) (total word, err error) {
	for i := 0; i < len(in); {
		var nodes []plan.Range
		var terms []word
		for use := op.Reads[i].Use; i < len(in) && op.Reads[i].Use == use; i++ {
			nodes = append(nodes, plan.Range{Lo: op.Reads[i].Lo, Hi: op.Reads[i].Hi})
			terms = append(terms, in[i].(word))
		}
		sums, err := plan.Merge(nodes, n)
		if err != nil {
			return 0, err
		}
		for _, s := range sums {
			terms[s.Into] = terms[s.Into].plus(terms[s.From])
		}
		total = digest("use", total, terms[0])
	}
	return total, nil
}

func (x *stub) Free(_ plan.Round, v plan.Value) { delete(x.memory, v) }

func (x *stub) restore(r plan.Round, in []machine.Payload) {
	p, d, _ := x.id.Rank()
	x.step, x.state, x.held = r.Step, map[int]word{}, nil
	for i, part := range x.plan.Parts(p, d) {
		if len(in) > 0 {
			x.state[part.Bucket] = in[0].(states)[i]
		} else {
			x.state[part.Bucket] = digest("seed", word(part.Bucket), word(d))
		}
	}
}

func (x *stub) publish(op *plan.Op, of map[int]word) []machine.Payload {
	out := make([]machine.Payload, len(op.Writes))
	for i, v := range op.Writes {
		out[i] = of[v.Index]
	}
	return out
}

func (x *stub) hold(r plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	if x.step != r.Step {
		return nil, fmt.Errorf("the state is that of step %d", x.step)
	}
	if x.held == nil {
		x.held = map[int]word{}
	}
	verdict := in[len(in)-1].(word)
	for i, v := range op.Reads[:len(in)-1] {
		x.held[v.Index] = digest("update", x.state[v.Index], in[i].(word), verdict)
	}
	return x.publish(op, x.held), nil
}

// stubTrainer is the executor of a trainer that hashes.
type stubTrainer struct {
	r    *run
	book *stubBook
}

func (x *stubTrainer) Run(_ device.Kernels, r plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	h := hashOf(r, op, in)
	switch op.Kind {
	case plan.Feed:
		if r.Phase == plan.TrainPhase {
			mb := x.r.plan.Train[op.Micro]
			for i := range mb.Rows {
				x.r.fed[r.Step*int64(x.r.plan.Job.Train.Batch)+int64(mb.Sample+i)]++
			}
		}
	case plan.Collect:
		out := make([]machine.Payload, len(op.Writes))
		for i, v := range op.Writes {
			out[i] = x.book.state[plan.ShardID(v.Index, v.Piece)]
		}
		return out, nil
	case plan.Finish:
		return make([]machine.Payload, len(op.Writes)), x.finish(r, op, in)
	}
	return outputs(op, h), nil
}

func (x *stubTrainer) finish(r plan.Round, op *plan.Op, in []machine.Payload) error {
	var what []word
	state := map[plan.ActorID]states{}
	for i, v := range op.Reads {
		switch v.Kind {
		case plan.Loss:
			what = append(what, in[i].(word))
		case plan.State:
			state[plan.ShardID(v.Index, v.Piece)] = in[i].(states)
		}
	}
	if r.Phase == plan.SnapshotPhase {
		if x.book.disks.Full(0) {
			return errDiskFull
		}
		x.book.step, x.book.state = r.Step, state
	}
	return x.r.finished(r, fmt.Sprintf("%016x", uint64(digest("losses", what...))))
}

func (x *stubTrainer) Free(plan.Round, plan.Value) {}
