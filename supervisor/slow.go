package supervisor

import (
	"fmt"
	"slices"
	"time"

	"github.com/troupe-train/troupe/plan"
)

// SlowWatch finds stages that compute slower than the plan and their peers say they should. It is pure: the times of
// a step come in. Every stage's time is divided by its share of the floating-point operations, as the plan predicts
// them; what is compared is the time of an operation, so a stage with more layers is not slow for that.
//
// What it knows of an actor belongs to one incarnation and one node.
type SlowWatch struct {
	policy plan.Slow
	flops  map[plan.ActorID]float64
	// rate is the best time of a floating-point operation that was seen so far, for plans with one stage.
	best   float64
	streak map[plan.ActorID]streak
}

type streak struct {
	incarnation int
	steps       int
	told        bool
}

// slowLeast is the least time of a step that says something of a node's speed, and not of its luck.
const slowLeast = 5 * time.Millisecond

// Measured is what a stage did in a step.
type Measured struct {
	Incarnation int
	Compute     time.Duration
}

// NewSlowWatch returns the watch of a plan.
func NewSlowWatch(p *plan.Plan) *SlowWatch {
	w := &SlowWatch{policy: p.Job.Supervisor.Slow, flops: map[plan.ActorID]float64{}, streak: map[plan.ActorID]streak{}}
	for _, a := range p.Predicted.Actors {
		if a.FLOPs > 0 {
			w.flops[a.ID] = a.FLOPs
		}
	}
	return w
}

// Step takes in a committed step. It returns the stages that have been slow for policy.Steps steps in a row: each
// once, until it has been as fast as the others again.
func (w *SlowWatch) Step(stages map[plan.ActorID]Measured) []Slow {
	if w.policy.Policy == "off" {
		return nil
	}
	rates := map[plan.ActorID]float64{}
	for id, m := range stages {
		if f := w.flops[id]; f > 0 && m.Compute >= slowLeast {
			rates[id] = m.Compute.Seconds() / f
		}
	}
	var found []Slow
	for _, id := range sortedIDs(rates) {
		s, alone := w.streak[id], len(rates) == 1
		if s.incarnation != stages[id].Incarnation {
			s = streak{incarnation: stages[id].Incarnation}
		}
		usual := w.usual(id, rates)
		times := rates[id] / usual
		switch {
		case times >= w.policy.Factor:
			s.steps++
		case times < midway(w.policy.Factor):
			// Of one that is alone it is told once in a life: nobody is there to do better, and a machine with
			// other work goes up and down.
			s = streak{incarnation: s.incarnation, told: s.told && alone}
		default: // between the two nothing changes, so that it does not flicker
		}
		if s.steps >= w.policy.Steps && !s.told {
			s.told = true
			than := "its share of the work takes the others"
			if alone {
				than = "at its best"
			}
			found = append(found, Slow{Actor: id, Incarnation: s.incarnation, Reason: fmt.Sprintf(
				"it has been slow for %d steps: in the last it computed %s, %.1f times as long as %s", s.steps, stages[id].Compute.Round(time.Microsecond), times, than)})
		}
		w.streak[id] = s
	}
	for _, r := range rates {
		if w.best == 0 || r < w.best {
			w.best = r
		}
	}
	return found
}

// midway lies between 1 and the factor: below it a stage is fast again.
func midway(factor float64) float64 { return (1 + factor) / 2 }

// usual is the median rate of the others; of a stage that is alone, the best that was seen.
func (w *SlowWatch) usual(id plan.ActorID, rates map[plan.ActorID]float64) float64 {
	var others []float64
	for other, r := range rates {
		if other != id {
			others = append(others, r)
		}
	}
	if len(others) == 0 {
		if w.best == 0 {
			return rates[id]
		}
		return w.best
	}
	slices.Sort(others)
	return others[(len(others)-1)/2]
}

func sortedIDs[V any](m map[plan.ActorID]V) []plan.ActorID {
	ids := make([]plan.ActorID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
