package sim

import (
	"time"

	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
)

// dice are random numbers of a seed.
type dice struct{ key, draws uint64 }

func (d *dice) below(n int) int {
	d.draws++
	return int(random.Uniform(d.key, d.draws) * float64(n))
}

func (d *dice) chance(p float64) bool { return d.below(1_000_000) < int(p*1_000_000) }

// between is a duration of at most 3 digits.
func (d *dice) between(lo, hi time.Duration) time.Duration {
	unit := max(lo/10, 1)
	return lo + unit*time.Duration(d.below(int((hi-lo)/unit)+1))
}

// shares are those of n micro-batches for some data ranks, at least one each.
func (d *dice) shares(n, ranks int) plan.Shares {
	counts := make([]int, ranks)
	for i := range counts {
		counts[i] = 1
	}
	for range n - ranks {
		counts[d.below(ranks)]++
	}
	return plan.SharesOf(counts)
}

// Schedule is the random schedule of faults of a seed: from 1 to FaultsMax of them, at any operation of any actor in
// any round, and changes of shares besides. Often several fall close together, since it is there that recoveries go wrong.
func (b *Bench) Schedule(seed uint64) []fault.Fault {
	d := &dice{key: random.Key(random.String("faults"), seed)}
	var faults []fault.Fault
	n := 1 + d.below(b.config.FaultsMax)
	var near *plan.Round
	for range n {
		f := b.fault(d, near)
		near = nil
		if d.chance(0.5) {
			near = &f.At.Round
		}
		faults = append(faults, f)
	}
	return append(faults, b.shifts(seed, faults)...)
}

// shifts are at most three changes of shares besides the faults of a schedule, often in the rounds that those strike.
// Their dice are their own, so that the faults of a seed are the same in plans without data ranks to shift between.
func (b *Bench) shifts(seed uint64, near []fault.Fault) []fault.Fault {
	p := b.config.Plan
	ranks, micro := p.Job.Layout.Data, len(p.Train)
	if ranks < 2 || micro <= ranks {
		return nil
	}
	d := &dice{key: random.Key(random.String("shifts"), seed)}
	var list []fault.Fault
	for range d.below(4) {
		round := b.rounds[d.below(len(b.rounds))]
		if at := near[d.below(len(near))].At.Round; d.chance(0.5) && at.Phase != plan.RecoverPhase {
			round = at
		}
		list = append(list, fault.Fault{Kind: fault.Shift, Shares: d.shares(micro, ranks), At: fault.Point{
			Actor: plan.Trainer, Round: round, Micro: fault.Any, Bucket: fault.Any,
			Number: d.below(len(p.Program(plan.Trainer, round.Phase).Ops) + 1),
		}})
	}
	return list
}

func (b *Bench) fault(d *dice, near *plan.Round) fault.Fault {
	p := b.config.Plan
	f := fault.Fault{At: fault.Point{Micro: fault.Any, Bucket: fault.Any}}
	if f.At.Round = b.rounds[d.below(len(b.rounds))]; near != nil {
		f.At.Round = *near
	}
	if d.chance(0.05) && f.At.Round.Phase != plan.InitPhase {
		f.At.Round.Phase = plan.RecoverPhase
	}
	actor := p.Actors[d.below(len(p.Actors))].ID
	// Launches, sends and receives together are about three for every two operations.
	f.At.Number = d.below(len(p.Program(actor, f.At.Round.Phase).Ops) + 1)
	nodes := b.nodes()
	kinds := []fault.Kind{
		fault.Kill, fault.Kill, fault.Kill, fault.Kill, fault.Panic, fault.Panic, fault.Hang, fault.Slow,
		fault.Drop, fault.Duplicate, fault.Delay, fault.Reorder, fault.Corrupt, fault.FillDisk, fault.JumpClock,
	}
	if nodes > 1 {
		kinds = append(kinds, fault.KillNode, fault.KillNode, fault.PauseNode, fault.PauseNode, fault.Partition, fault.Partition)
	}
	f.Kind = kinds[d.below(len(kinds))]
	switch f.Kind {
	case fault.Kill, fault.Panic:
		f.Actor = actor
	case fault.Hang:
		if f.Actor = actor; d.chance(0.5) {
			f.For = d.between(10*time.Millisecond, 15*time.Second)
		}
	case fault.Slow:
		f.Actor, f.Factor, f.For = actor, float64(2+d.below(50)), d.between(10*time.Millisecond, time.Second)
	case fault.KillNode, fault.PauseNode:
		f.At.Actor, f.Node = actor, 1+d.below(nodes-1)
		if f.Kind == fault.PauseNode {
			f.For = d.between(10*time.Millisecond, 5*time.Second)
		}
	case fault.Partition:
		f.At.Actor, f.For = actor, d.between(10*time.Millisecond, 5*time.Second)
		for n := 1; n < nodes; n++ {
			if d.chance(0.4) {
				f.Nodes = append(f.Nodes, n)
			}
		}
		if len(f.Nodes) == 0 {
			f.Nodes = []int{1 + d.below(nodes-1)}
		}
	case fault.FillDisk:
		f.At.Actor, f.For = plan.Trainer, d.between(10*time.Millisecond, time.Second)
		f.At.Number = d.below(len(p.Program(plan.Trainer, f.At.Round.Phase).Ops) + 1)
	case fault.JumpClock:
		f.At.Actor, f.For = actor, d.between(time.Second, time.Hour)
		if d.chance(0.5) {
			f.For = -f.For
		}
	default: // messages
		f.From, f.Times = actor, 1+d.below(5)
		if f.Kind == fault.Delay {
			f.For = d.between(time.Millisecond, 500*time.Millisecond)
		}
	}
	return f
}

// Shrink makes the schedule of a run that went wrong as small as it can: it leaves out faults, strikes them
// less often and earlier, as long as the run still goes wrong.
func (b *Bench) Shrink(o *Outcome) *Outcome {
	for smaller := true; smaller; {
		smaller = false
		for _, faults := range simpler(o.Faults) {
			if next := b.Run(o.Seed, faults, nil); next.Violation != nil {
				o, smaller = next, true
				break
			}
		}
	}
	return o
}

// simpler are schedules with one thing less, the ones that leave out most first.
func simpler(faults []fault.Fault) [][]fault.Fault {
	var all [][]fault.Fault
	without := func(lo, hi int) {
		all = append(all, append(append([]fault.Fault{}, faults[:lo]...), faults[hi:]...))
	}
	if n := len(faults); n > 3 {
		without(0, n/2)
		without(n/2, n)
	}
	for i := range faults {
		without(i, i+1)
	}
	change := func(i int, f fault.Fault) {
		list := append([]fault.Fault{}, faults...)
		list[i] = f
		all = append(all, list)
	}
	for i, f := range faults {
		if f.Times > 1 {
			less := f
			less.Times = f.Times / 2
			change(i, less)
		}
		if f.At.Number > 0 {
			less := f
			less.At.Number = f.At.Number / 2
			change(i, less)
			less.At.Number = f.At.Number - 1
			change(i, less)
		}
		if f.Kind == fault.Partition && len(f.Nodes) > 1 {
			less := f
			less.Nodes = f.Nodes[1:]
			change(i, less)
		}
	}
	return all
}
