package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Shares are the micro-batches that each data rank runs in a step, as text: "5,3". The empty Shares stand for those
// of the plan. They are contiguous: rank 0 runs the first ones.
//
// The order in which gradients are summed is a function of the number of micro-batches alone (see tree.go), so
// shares change which actor computes what, and not one bit of what is computed.
type Shares string

// maxShares is the longest text: it stands in the header of every message of its round.
const maxShares = 2048

// SharesOf are the shares with the given numbers of micro-batches, by data rank.
func SharesOf(counts []int) Shares {
	words := make([]string, len(counts))
	for i, n := range counts {
		words[i] = strconv.Itoa(n)
	}
	return Shares(strings.Join(words, ","))
}

// Counts are the micro-batches of each data rank. It is an error if s is not what SharesOf writes.
func (s Shares) Counts() ([]int, error) {
	if len(s) > maxShares {
		return nil, fmt.Errorf("plan: shares of %d bytes; at most %d are legal", len(s), maxShares)
	}
	var counts []int
	for _, word := range strings.Split(string(s), ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || n > maxMicro {
			return nil, fmt.Errorf("plan: the shares %q have %q where a number from 0 to %d is legal", s, word, maxMicro)
		}
		counts = append(counts, n)
	}
	if SharesOf(counts) != s {
		return nil, fmt.Errorf("plan: the shares %q are not written as %q", s, SharesOf(counts))
	}
	return counts, nil
}

// Shares are those of the plan, in numbers.
func (pl *Plan) Shares() []int {
	counts := make([]int, pl.Job.Layout.Data)
	for _, b := range pl.Train {
		counts[b.Data]++
	}
	return counts
}

// CountsOf are shares that fit the plan, in numbers.
func (pl *Plan) CountsOf(s Shares) []int {
	if counts, err := s.Counts(); s != "" && err == nil {
		return counts
	}
	return pl.Shares()
}

// SharesOf writes down shares by data rank; empty if they are those of the plan.
func (pl *Plan) SharesOf(counts []int) Shares {
	if slices.Equal(counts, pl.Shares()) {
		return ""
	}
	return SharesOf(counts)
}

// Deal gives the micro-batches of a step to the data ranks by shares. Every rank must have at least one, because one
// without work cannot be seen to be fast.
func (pl *Plan) Deal(s Shares) ([]MicroBatch, error) {
	if s == "" {
		return pl.Train, nil
	}
	counts, err := s.Counts()
	if err != nil {
		return nil, err
	}
	sum := 0
	for d, n := range counts {
		if n < 1 {
			return nil, fmt.Errorf("plan: the shares %s leave data rank %d without a micro-batch; 1 and up are legal", s, d)
		}
		sum += n
	}
	if len(counts) != pl.Job.Layout.Data || sum != len(pl.Train) {
		return nil, fmt.Errorf("plan: the shares %s give %d micro-batches to %d data ranks; the plan has %d micro-batches and %d data ranks", s, sum, len(counts), len(pl.Train), pl.Job.Layout.Data)
	}
	return cut(pl.Job.Train.Batch, pl.Job.Train.MicroBatch, counts), nil
}

// ProgramIn returns what an actor does in a round: a pure function of the plan and the round. It is nil for an actor
// that the plan does not have; the error is about shares that do not fit the plan.
func (pl *Plan) ProgramIn(a ActorID, r Round) (*Program, error) {
	if r.Phase >= Phases {
		return nil, nil
	}
	if r.Shares == "" {
		return pl.Programs[r.Phase][a], nil
	}
	if r.Phase != TrainPhase {
		return nil, fmt.Errorf("plan: a round of the phase %s has the shares %s; only training steps have shares", r.Phase, r.Shares)
	}
	i := slices.IndexFunc(pl.Actors, func(x Actor) bool { return x.ID == a })
	if i < 0 {
		return nil, nil
	}
	q, err := pl.dealt(r.Shares)
	if err != nil {
		return nil, err
	}
	return finished(a, TrainPhase, newLowering(q).train(a, i)), nil
}

// dealt is the plan with its micro-batches dealt by shares; its programs are still those of pl.
func (pl *Plan) dealt(s Shares) (*Plan, error) {
	batches, err := pl.Deal(s)
	if err != nil {
		return nil, err
	}
	q := *pl
	q.Train = batches
	return &q, nil
}

// Reshare is the plan that runs its steps by other shares: with other programs of the training phase, which are
// those of ProgramIn, and with other predictions. It is proved by Check, but for the phases that it shares with pl.
func (pl *Plan) Reshare(s Shares) (*Plan, error) {
	q, err := pl.dealt(s)
	if err != nil || s == "" {
		return q, err
	}
	l := newLowering(q)
	q.Programs[TrainPhase] = l.programs(TrainPhase, l.train)
	q.Predicted = predict(q)
	for _, check := range []func(*Plan) error{checkShape, func(pl *Plan) error { return checkPhase(pl, TrainPhase) }, checkOffers} {
		if err := check(q); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// Pace is how long a data rank takes for m micro-batches: Fixed + m Each, in any unit of time.
type Pace struct{ Each, Fixed float64 }

func (p Pace) of(m int) float64 { return p.Fixed + float64(m)*p.Each }

// Last is when the last of the data ranks has finished its micro-batches.
func Last(counts []int, paces []Pace) float64 {
	last := 0.0
	for d, n := range counts {
		last = max(last, paces[d].of(n))
	}
	return last
}

// Apportion deals n micro-batches to data ranks, at least one each, so that the last rank finishes as early as it
// can (Malleus, Li et al. 2024, section on data: min max o_i m_i). Each micro-batch goes to the rank that would finish
// first with it, which is exact: times only grow with m. Ranks of one pace get even shares, the bigger ones first.
func Apportion(n int, paces []Pace) []int {
	counts := make([]int, len(paces))
	for d := range counts {
		counts[d] = 1
	}
	for range n - len(counts) {
		best := 0
		for d := range counts {
			if paces[d].of(counts[d]+1) < paces[best].of(counts[best]+1) {
				best = d
			}
		}
		counts[best]++
	}
	return counts
}

// scaled are shares in the proportion of given ones that add up to n: for a message.
func scaled(shares []int, n int) []int {
	paces := make([]Pace, len(shares))
	for d, s := range shares {
		paces[d].Each = 1 / float64(max(s, 1))
	}
	return Apportion(n, paces)
}
