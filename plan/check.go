package plan

import (
	"fmt"
	"slices"
)

// Check proves a plan, whoever made it. It shares with the lowering only the names of values and
// the definition of the tree, and proves for each phase:
//
//   - every operation is at the right actor, and reads and writes what its kind says (checkWork);
//   - F, B and W of every layer and micro-batch are there exactly once, B after F and W after B, by
//     the values they hand on; so are the reductions, updates and loads of every piece of every bucket;
//   - the gradients of every use of a bucket reach each of its shards as nodes of the tree that cover
//     all micro-batches without overlap, so that every leaf counts once, in the tree's association;
//   - every value that is read is written before, never after it was freed, and freed at the end (checkValues);
//   - every Send has exactly one Receive and every Receive one Send (checkMessages);
//   - everything that an actor receives when it recovers is offered by exactly one other actor in every round in
//     which it may have to, before that one waits for anybody (checkOffers);
//   - all programs end when messages are delivered in one order (drain). They are deterministic
//     processes with first-in named inputs, so they end under every order, with equal values (Kahn 1974).
//
// The error names phase, actor, operation and what is wrong in one line.
func Check(pl *Plan) error {
	if err := checkShape(pl); err != nil {
		return err
	}
	for ph := range Phases {
		if err := checkPhase(pl, ph); err != nil {
			return err
		}
	}
	return checkOffers(pl)
}

func checkPhase(pl *Plan, ph Phase) error {
	c := &checker{pl: pl, phase: ph, batches: batchesOf(pl, ph), actors: map[ActorID]int{}}
	for i, a := range pl.Actors {
		c.actors[a.ID] = i
	}
	for id := range pl.Programs[ph] {
		if _, ok := c.actors[id]; !ok {
			return fmt.Errorf("plan: %s: there is a program for %s, which is no actor of the plan", ph, id)
		}
	}
	for _, a := range pl.Actors {
		p := pl.Programs[ph][a.ID]
		if p == nil {
			return fmt.Errorf("plan: %s: %s has no program", ph, a.ID)
		}
		if p.Actor != a.ID || p.Phase != ph {
			return fmt.Errorf("plan: %s: the program of %s says that it is of %s in %s", ph, a.ID, p.Actor, p.Phase)
		}
	}
	for _, step := range []func() error{c.checkWork, c.checkValues, c.checkMessages, c.drain} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checker proves one phase.
type checker struct {
	pl      *Plan
	phase   Phase
	batches []MicroBatch
	actors  map[ActorID]int
}

func (c *checker) program(a ActorID) *Program { return c.pl.Programs[c.phase][a] }

// errorf names the place: operation i of an actor.
func (c *checker) errorf(a ActorID, i int, format string, args ...any) error {
	return fmt.Errorf("plan: %s, %s, operation %d (%s): %s", c.phase, a, i, c.program(a).Ops[i], fmt.Sprintf(format, args...))
}

func batchesOf(pl *Plan, ph Phase) []MicroBatch {
	switch ph {
	case TrainPhase:
		return pl.Train
	case EvaluatePhase:
		return pl.Held
	}
	return nil
}

// checkShape proves what does not depend on programs: stages, micro-batches, buckets, actors.
func checkShape(pl *Plan) error {
	degree, layers := pl.Job.Layout.Data, len(pl.Model.Layers)
	at := 0
	for r, s := range pl.Stages {
		if s.Lo != at || s.Hi < s.Lo {
			return fmt.Errorf("plan: pipeline rank %d holds layers [%d,%d), but the ranks before end at layer %d", r, s.Lo, s.Hi, at)
		}
		at = s.Hi
	}
	if at != layers || len(pl.Stages) != pl.Job.Layout.Pipeline {
		return fmt.Errorf("plan: %d pipeline ranks hold %d layers, but the layout has %d ranks and the model %d layers", len(pl.Stages), at, pl.Job.Layout.Pipeline, layers)
	}
	for _, b := range []struct {
		name    string
		batches []MicroBatch
		rows    int
	}{{"train", pl.Train, pl.Job.Train.Batch}, {"evaluate", pl.Held, pl.Job.Train.Evaluate.Batch}} {
		rows, data := 0, 0
		for i, m := range b.batches {
			if m.Index != i || m.Sample != rows || m.Rows < 1 || m.Data < data || m.Data >= degree {
				return fmt.Errorf("plan: %s micro-batch %d is %+v; index %d, sample %d, at least 1 row and a data rank from %d to %d are legal", b.name, i, m, i, rows, data, degree-1)
			}
			rows, data = rows+m.Rows, m.Data
		}
		if rows != b.rows {
			return fmt.Errorf("plan: the %s micro-batches hold %d rows, but the batch has %d", b.name, rows, b.rows)
		}
	}
	if err := checkBuckets(pl); err != nil {
		return err
	}
	want := []ActorID{Trainer}
	for _, id := range []func(int, int) ActorID{StageID, ShardID} {
		for p := range pl.Stages {
			for d := range degree {
				want = append(want, id(p, d))
			}
		}
	}
	if pl.Job.Supervisor.Mirror {
		for p := range pl.Stages {
			for d := range degree {
				if len(pl.Parts(p, d)) > 0 {
					want = append(want, MirrorID(p, d))
				}
			}
		}
	}
	if len(want) != len(pl.Actors) {
		return fmt.Errorf("plan: there are %d actors; the layout has %d", len(pl.Actors), len(want))
	}
	for i, a := range pl.Actors {
		if a.ID != want[i] || a.Node < 0 {
			return fmt.Errorf("plan: actor %d is %s on node %d; %s is legal there", i, a.ID, a.Node, want[i])
		}
	}
	return nil
}

// checkBuckets proves that the pieces and the blocks of each bucket cover it, that no block is too
// long or spans two parameters, and that pieces are cut between blocks.
func checkBuckets(pl *Plan) error {
	buckets := pl.Model.Buckets()
	if len(buckets) != len(pl.Buckets) {
		return fmt.Errorf("plan: %d buckets are planned, but the model has %d", len(pl.Buckets), len(buckets))
	}
	for i, b := range pl.Buckets {
		n := buckets[i].Len
		if b.Rank < 0 || b.Rank >= len(pl.Stages) || buckets[i].Uses[0] < pl.Stages[b.Rank].Lo || buckets[i].Uses[0] >= pl.Stages[b.Rank].Hi {
			return fmt.Errorf("plan: bucket %d belongs to pipeline rank %d, which does not hold layer %d, its first use", i, b.Rank, buckets[i].Uses[0])
		}
		if len(b.Pieces) != pl.Job.Layout.Data {
			return fmt.Errorf("plan: bucket %d is cut into %d pieces, but there are %d data ranks", i, len(b.Pieces), pl.Job.Layout.Data)
		}
		for name, ranges := range map[string][]Range{"pieces": b.Pieces, "blocks": b.Blocks} {
			at := 0
			for _, r := range ranges {
				if r.Lo != at || r.Hi < r.Lo {
					return fmt.Errorf("plan: the %s of bucket %d have [%d,%d) after element %d", name, i, r.Lo, r.Hi, at)
				}
				at = r.Hi
			}
			if at != n {
				return fmt.Errorf("plan: the %s of bucket %d end at element %d, but it has %d", name, i, at, n)
			}
		}
		starts := map[int]bool{n: true}
		for _, k := range b.Blocks {
			starts[k.Lo] = true
			j, _ := slices.BinarySearch(buckets[i].Offsets, k.Lo+1)
			if end := buckets[i].Offsets[j-1] + buckets[i].Params[j-1].Len(); k.Len() < 1 || k.Len() > NormBlock || k.Hi > end {
				return fmt.Errorf("plan: block [%d,%d) of bucket %d has more than %d elements, none, or goes past element %d, where parameter %s ends", k.Lo, k.Hi, i, NormBlock, end, buckets[i].Params[j-1].Name)
			}
		}
		for j, r := range b.Pieces {
			if !starts[r.Lo] {
				return fmt.Errorf("plan: piece %d of bucket %d starts at element %d, inside a block", j, i, r.Lo)
			}
		}
	}
	return nil
}
