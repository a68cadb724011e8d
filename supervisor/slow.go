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
	load   *load
	// best is the best time of a floating-point operation that was seen so far, for plans with one stage.
	best   float64
	streak map[plan.ActorID]streak
}

// streak is what is known of one life: whether it is slow, and for how many steps in a row it has been otherwise.
type streak struct {
	incarnation int
	steps       int
	span        time.Duration // of these steps, as far as stages computed in them
	slow        bool
}

// evidence is the least time, of steps in a row, that a decision on the speed of a stage rests on, however many steps that
// takes: what an operating system does with steps of a few milliseconds says nothing of the node.
const evidence = 250 * time.Millisecond

// spanOf is a lower bound of the time of a step: the longest that a stage computed in it.
func spanOf(stages map[plan.ActorID]Measured) time.Duration {
	var most time.Duration
	for _, m := range stages {
		most = max(most, m.Compute)
	}
	return most
}

// slowLeast is the least time of a step, by the shares of the plan, that says something of a node's speed, and not of its
// luck: nobody is slow next to others for taking longer than less than that.
const slowLeast = 5 * time.Millisecond

// Measured is what a stage did in a step.
type Measured struct {
	Incarnation int
	Compute     time.Duration
}

// NewSlowWatch returns the watch of a plan.
func NewSlowWatch(p *plan.Plan) *SlowWatch {
	return &SlowWatch{policy: p.Job.Supervisor.Slow, load: newLoad(p), streak: map[plan.ActorID]streak{}}
}

// IsSlow says that a stage has been found slow, and has not been as fast as the others again since.
func (w *SlowWatch) IsSlow(id plan.ActorID) bool { return w.streak[id].slow }

// Step takes in a committed step that was run by given shares. It returns the stages that have been slow for
// policy.Steps steps in a row, and for the time that is evidence: each once, until it has been as fast as the others again for as long.
func (w *SlowWatch) Step(s plan.Shares, stages map[plan.ActorID]Measured) []Slow {
	if w.policy.Policy == "off" {
		return nil
	}
	// rates are the times of an operation, and others those that a stage is compared with.
	rates, others := map[plan.ActorID]float64{}, map[plan.ActorID]float64{}
	for id, m := range stages {
		if f := w.load.of(id, s); f > 0 {
			rates[id] = m.Compute.Seconds() / f
			others[id] = max(rates[id], slowLeast.Seconds()/w.load.of(id, ""))
		}
	}
	var found []Slow
	span := spanOf(stages)
	for _, id := range sortedIDs(rates) {
		s, alone := w.streak[id], len(rates) == 1
		if s.incarnation != stages[id].Incarnation {
			s = streak{incarnation: stages[id].Incarnation}
		}
		usual := w.usual(id, others)
		times := rates[id] / usual
		slow, fast := times >= w.policy.Factor, times < midway(w.policy.Factor) // between the two nothing changes
		switch {
		case slow && !s.slow, fast && s.slow && !alone:
			s.steps, s.span = s.steps+1, s.span+span
		case slow || fast:
			s.steps, s.span = 0, 0
		}
		// Of one that is alone it is told once in a life: nobody is there to do better, and a machine with
		// other work goes up and down.
		if s.steps >= w.policy.Steps && s.span >= evidence {
			n := s.steps
			s.steps, s.span, s.slow = 0, 0, !s.slow
			if s.slow {
				than := "its share of the work takes the others"
				if alone {
					than = "at its best"
				}
				found = append(found, Slow{Actor: id, Incarnation: s.incarnation, Reason: fmt.Sprintf(
					"it has been slow for %d steps: in the last it computed %s, %.1f times as long as %s", n, stages[id].Compute.Round(time.Microsecond), times, than)})
			}
		}
		w.streak[id] = s
	}
	for _, r := range others {
		if w.best == 0 || r < w.best {
			w.best = r
		}
	}
	return found
}

// midway lies between 1 and the factor: below it a stage is fast again.
func midway(factor float64) float64 { return (1 + factor) / 2 }

// usual is the median rate of the others; of a stage that is alone, the best that was seen. Where micro-batches may be
// shifted, the others are those that run the same layers: nothing can be shifted away from the rest.
func (w *SlowWatch) usual(id plan.ActorID, rates map[plan.ActorID]float64) float64 {
	var others []float64
	p, _, _ := id.Rank()
	for other, r := range rates {
		if q, _, _ := other.Rank(); other != id && (q == p || w.policy.Policy != "shift") {
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

// load is how much work the stages have in a step: floating-point operations, as the plan predicts them, by shares. Where
// the job gives uneven shares, the ranks are held to have speeds in their proportion.
type load struct {
	plan *plan.Plan
	// flops are those of a sequence, and rows the sequences of the data ranks by the newest shares that were asked for.
	flops  map[plan.ActorID]float64
	shares plan.Shares
	rows   []int
	own    []int // rows by the shares of the plan
}

func newLoad(p *plan.Plan) *load {
	rows := rowsOf(p.Train, p.Job.Layout.Data)
	l := &load{plan: p, flops: map[plan.ActorID]float64{}, rows: rows, own: rows}
	for _, a := range p.Predicted.Actors {
		if _, d, _ := a.ID.Rank(); a.FLOPs > 0 {
			l.flops[a.ID] = a.FLOPs / float64(l.rows[d]) / l.speed(d)
		}
	}
	return l
}

// speed is that of a data rank by the job, next to the mean of all.
func (l *load) speed(d int) float64 {
	shares := l.plan.Job.Layout.Shares
	if len(shares) == 0 {
		return 1
	}
	return float64(shares[d]*len(shares)) / float64(len(l.plan.Train))
}

// of is 0 for a stage without layers, and for shares that do not fit the plan.
func (l *load) of(id plan.ActorID, s plan.Shares) float64 {
	_, d, _ := id.Rank()
	if s == "" {
		return l.flops[id] * float64(l.own[d])
	}
	if s != l.shares {
		batches, err := l.plan.Deal(s)
		if err != nil {
			return 0
		}
		l.shares, l.rows = s, rowsOf(batches, len(l.rows))
	}
	return l.flops[id] * float64(l.rows[d])
}

// rowsOf are the sequences of each data rank.
func rowsOf(batches []plan.MicroBatch, ranks int) []int {
	rows := make([]int, ranks)
	for _, b := range batches {
		rows[b.Data] += b.Rows
	}
	return rows
}

func sortedIDs[V any](m map[plan.ActorID]V) []plan.ActorID {
	ids := make([]plan.ActorID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
