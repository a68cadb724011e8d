package sim

import (
	"context"
	"errors"

	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
)

// shelf keeps the last snapshot of a run as whole vectors, of weights and of moments, by bucket. Whatever the layout,
// it gives a shard its state.
type shelf struct {
	plan    *plan.Plan
	disks   *Disks
	step    int64 // of the snapshot; -1 before the first
	vectors [][][]float32
}

var errDiskFull = errors.New("no space left on the disk")

func (s *shelf) Restore(id plan.ActorID) ([]float32, error) {
	p, d, _ := id.Rank()
	var state []float32
	for _, vectors := range s.vectors {
		for _, part := range s.plan.Parts(p, d) {
			state = append(state, vectors[part.Bucket][part.Range.Lo:part.Range.Hi]...)
		}
	}
	return state, nil
}

func (s *shelf) Keep(_ context.Context, step int64, state map[plan.ActorID][]float32) error {
	if s.disks.Full(0) {
		return errDiskFull
	}
	var vectors [][][]float32
	for len(state) > 0 {
		whole := make([][]float32, len(s.plan.Buckets))
		for i := range whole {
			whole[i] = make([]float32, s.plan.Model.Buckets()[i].Len)
		}
		for id, rest := range state {
			p, d, _ := id.Rank()
			for _, part := range s.plan.Parts(p, d) {
				rest = rest[copy(whole[part.Bucket][part.Range.Lo:part.Range.Hi], rest):]
			}
			state[id] = rest
			if len(rest) == 0 {
				delete(state, id)
			}
		}
		vectors = append(vectors, whole)
	}
	s.step, s.vectors = step, vectors
	return nil
}

// weights is the hash of the weights of the snapshot.
func (s *shelf) weights() string {
	if len(s.vectors) == 0 {
		return ""
	}
	return model.Hash(s.plan.Model, func(i int) []float32 { return s.vectors[0][i] })
}

// Noise is a text that is made up: its windows are a pure function of their numbers.
type Noise struct {
	Vocab int
	Seed  uint64
}

// Window writes training sample i, and Held held-out sequence j.
func (n Noise) Window(i int64, dst []int32) { n.write(1, uint64(i), dst) }
func (n Noise) Held(j int, dst []int32)     { n.write(2, uint64(j), dst) }

func (n Noise) write(part, i uint64, dst []int32) {
	key := random.Key(random.String("noise"), n.Seed, part)
	for t := range dst {
		dst[t] = int32(random.Block(key, i, uint64(t))[0] % uint32(n.Vocab))
	}
}
