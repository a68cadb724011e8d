package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-train/troupe/plan"
)

// Shifter answers slow stages by shifting micro-batches to the other data ranks, for the policy "shift". It is pure:
// what was measured in a step comes in, as to SlowWatch, which says who is slow.
//
// While some stage is slow, the shares are those by which the data ranks would end at the same time, as far as whole
// micro-batches allow, by the median of the times of the last policy.Steps steps, or of more where steps are short. When none
// is slow any more, they are those of the plan again. A decision needs policy.Steps steps, and the time that is evidence, in which
// every stage was measured since the one before, in the life that it lives now; and other shares must be worth it. So equal
// ranks do not play ball.
type Shifter struct {
	plan   *plan.Plan
	watch  *SlowWatch
	load   *load
	counts []int // the shares that were decided last
	recent map[plan.ActorID]*recent
	slow   []plan.ActorID // when that was decided
	told   string         // of shares that were refused; told once
}

// recent are the seconds per floating-point operation of a life in its last steps, oldest first, and the spans of these steps.
type recent struct {
	incarnation int
	times       []float64
	spans       []time.Duration
	span        time.Duration // their sum
}

// add takes in a step, and lets the oldest ones go that are not needed for n steps and the time that is evidence.
func (r *recent) add(time float64, span time.Duration, n int) {
	r.times, r.spans, r.span = append(r.times, time), append(r.spans, span), r.span+span
	for len(r.times) > n && r.span-r.spans[0] >= evidence {
		r.span -= r.spans[0]
		r.times, r.spans = slices.Delete(r.times, 0, 1), slices.Delete(r.spans, 0, 1)
	}
}

func (r *recent) full(n int) bool { return len(r.times) >= n && r.span >= evidence }

// Shift is a decision to run steps by other shares.
type Shift struct {
	From, To []int
	// Shares are To, as the plan writes them.
	Shares plan.Shares
	Reason string
}

func (s Shift) String() string {
	return fmt.Sprintf("shift micro-batches of the data ranks from %s to %s: %s", plan.SharesOf(s.From), plan.SharesOf(s.To), s.Reason)
}

// shiftGain is by how much the computing of a step must be expected to be shorter for a shift to be worth it, and
// againGain the same while the same stages are slow as before: medians of a machine with other work to do go up and down.
const shiftGain, againGain = 0.1, 0.2

// NewShifter is that of a plan whose stages are watched.
func NewShifter(p *plan.Plan, w *SlowWatch) *Shifter {
	return &Shifter{plan: p, watch: w, load: w.load, counts: p.Shares(), recent: map[plan.ActorID]*recent{}}
}

// Step takes in a committed step that was run by given shares, after the watch has. It returns what is decided: a
// Shift, a Noted when shares that would be better are out of reach, or nil.
func (x *Shifter) Step(s plan.Shares, stages map[plan.ActorID]Measured) Decision {
	full, span := true, spanOf(stages)
	for id := range x.load.flops {
		m, ok := stages[id]
		if !ok {
			return nil
		}
		r := x.recent[id]
		if r == nil || r.incarnation != m.Incarnation {
			r = &recent{incarnation: m.Incarnation}
			x.recent[id] = r
		}
		r.add(m.Compute.Seconds()/x.load.of(id, s), span, x.watch.policy.Steps)
		full = full && r.full(x.watch.policy.Steps)
	}
	if !full {
		return nil
	}
	to, slow, reason := x.want()
	if to == nil || slices.Equal(to, x.counts) {
		return nil
	}
	clear(x.recent) // the next decision rests on steps from here on
	to, short := x.within(to)
	if short != "" {
		reason += "; " + short
	}
	if slices.Equal(to, x.counts) {
		if reason = fmt.Sprintf("the micro-batches of the data ranks stay %s: %s", plan.SharesOf(to), reason); short == x.told {
			return nil
		}
		x.told = short
		return Noted{reason}
	}
	d := Shift{From: x.counts, To: to, Shares: x.plan.SharesOf(to), Reason: reason}
	x.counts, x.slow, x.told = to, slow, short
	return d
}

// want are the shares that are best now, for stages that are slow, with the reason; nil if others than those of now are
// not worth it.
func (x *Shifter) want() (to []int, slow []plan.ActorID, reason string) {
	var tell []string
	paces := make([]plan.Pace, x.plan.Job.Layout.Data)
	for p := range x.plan.Stages {
		if x.load.flops[plan.StageID(p, 0)] == 0 {
			continue
		}
		usual := x.usual(p)
		for d := range paces {
			id := plan.StageID(p, d)
			time := usual
			if x.watch.IsSlow(id) {
				if time = x.time(id); time < midway(x.watch.policy.Factor)*usual {
					return nil, nil, "" // it may be about to be fast again, which is for the watch to say
				}
				slow = append(slow, id)
				tell = append(tell, fmt.Sprintf("%s takes %.1f times as long as its peers", id, time/usual))
			}
			// A rank needs its slowest stage for every micro-batch, and the others once, before and after it.
			each := time * x.load.flops[id]
			paces[d].Each, paces[d].Fixed = max(paces[d].Each, each), paces[d].Fixed+each
		}
	}
	for d := range paces {
		paces[d].Fixed -= paces[d].Each
	}
	if len(slow) == 0 {
		return x.plan.Shares(), nil, "no stage is slow any more"
	}
	to = plan.Apportion(len(x.plan.Train), paces)
	gain := 1 - plan.Last(to, paces)/plan.Last(x.counts, paces)
	least := shiftGain
	if slices.Equal(slow, x.slow) {
		least = againGain
	}
	if gain < least {
		return nil, nil, ""
	}
	return to, slow, fmt.Sprintf("%s; computing should take %.0f %% less time", strings.Join(tell, ", "), 100*gain)
}

// time is the median of the last times of a stage.
func (x *Shifter) time(id plan.ActorID) float64 {
	times := slices.Sorted(slices.Values(x.recent[id].times))
	return times[len(times)/2]
}

// usual is the median over the stages of a pipeline rank that are not slow; over all, if all are.
func (x *Shifter) usual(p int) float64 {
	var fast, all []float64
	for d := range x.plan.Job.Layout.Data {
		id := plan.StageID(p, d)
		t := x.time(id)
		if all = append(all, t); !x.watch.IsSlow(id) {
			fast = append(fast, t)
		}
	}
	if len(fast) == 0 {
		fast = all
	}
	slices.Sort(fast)
	return fast[(len(fast)-1)/2]
}

// within are the shares next to given ones that the actors have the memory for: as long as one has not, a micro-batch goes
// back to where it is now. short says why they are others than those given.
func (x *Shifter) within(to []int) (fit []int, short string) {
	fit = slices.Clone(to)
	for !slices.Equal(fit, x.counts) {
		err := fits(x.plan, x.plan.SharesOf(fit))
		if err == nil {
			return fit, short
		}
		if short == "" {
			short = err.Error()
		}
		most, least := 0, 0
		for d := range fit {
			if fit[d]-x.counts[d] > fit[most]-x.counts[most] {
				most = d
			}
			if fit[d]-x.counts[d] < fit[least]-x.counts[least] {
				least = d
			}
		}
		fit[most]--
		fit[least]++
	}
	return fit, short
}

// fits says why a plan cannot be run by shares: its programs would be wrong, or an actor would need more memory than it may.
func fits(p *plan.Plan, s plan.Shares) error {
	q, err := p.Reshare(s)
	if err != nil {
		return err
	}
	limit := p.Job.Train.MemoryLimit
	for _, a := range q.Predicted.Actors {
		if limit > 0 && a.Peak() > limit {
			return fmt.Errorf("by %s %s would need %d bytes, and train.memory_limit is %d", plan.SharesOf(q.Shares()), a.ID, a.Peak(), limit)
		}
	}
	return nil
}
