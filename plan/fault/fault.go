package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-train/troupe/plan"
)

// Kind is what goes wrong.
type Kind uint8

const (
	// Kill ends an actor without a word: its machine, stream and memory are gone.
	Kill Kind = iota + 1
	// Panic makes the operation panic.
	Panic
	// Hang makes the operation last For, or for ever.
	Hang
	// Slow makes every operation of the actor last Factor times as long, for For, or for ever.
	Slow
	// KillNode ends all actors of a node.
	KillNode
	// PauseNode stops a node for For, as SIGSTOP and SIGCONT do.
	PauseNode
	// FillDisk makes every write to the disk of a node fail, for For.
	FillDisk
	// JumpClock moves the clock by which a node decides by For, which may be below 0.
	JumpClock
	// Partition cuts nodes from all others, for For.
	Partition
	// Shift is no harm: it has the steps to come run by Shares, as when a data rank has become slow.
	Shift
	// Drop, Duplicate, Delay (by For), Reorder (let what was sent later come first) and Corrupt (flip a bit on the wire) strike a message.
	Drop
	Duplicate
	Delay
	Reorder
	Corrupt
	kinds
)

var names = [kinds]string{"", "kill", "panic", "hang", "slow", "kill-node", "pause-node", "fill-disk", "jump-clock", "partition", "shift",
	"drop", "duplicate", "delay", "reorder", "corrupt"}

func (k Kind) String() string {
	if k > 0 && k < kinds {
		return names[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// target says what a kind of fault strikes.
type target uint8

const (
	anActor target = iota
	aNode
	someNodes
	someShares
	aMessage
)

func (k Kind) target() target {
	switch {
	case k <= Slow:
		return anActor
	case k < Partition:
		return aNode
	case k == Partition:
		return someNodes
	case k == Shift:
		return someShares
	}
	return aMessage
}

// Kinds are all kinds of faults.
func Kinds() []Kind {
	var all []Kind
	for k := Kind(1); k < kinds; k++ {
		all = append(all, k)
	}
	return all
}

// timed says whether For means something for a kind, and factored whether Factor does.
func (k Kind) timed() bool {
	return k == Hang || k == Slow || k >= PauseNode && k <= Partition || k == Delay
}
func (k Kind) factored() bool { return k == Slow }

// Any is the number that every number matches.
const Any = -1

// Point is a place in the protocol: an operation of an actor in a round, when it is about to begin. A
// receive begins when the message has come, and a send when it goes out.
type Point struct {
	// Actor is whose operation it is. Empty stands for the actor that is struck or, for a message, its sender.
	Actor plan.ActorID
	Round plan.Round
	// Op 0 stands for every operation.
	Op plan.OpKind
	// Value is the kind of what is sent or received; 0 stands for every one.
	Value plan.Kind
	// Micro and Bucket are those of the operation or of its value.
	Micro, Bucket int
	// Number counts the operations that match the rest, from 0, in each process from its start.
	Number int
}

// Fault is one thing that goes wrong. Fields that its kind does not use are zero.
type Fault struct {
	Kind  Kind
	Actor plan.ActorID
	Node  int
	Nodes []int
	// Shares are micro-batches by data rank.
	Shares plan.Shares
	// Value, From and To name messages; zero values stand for any. A message fault strikes those that are sent
	// in the round of At, and looks at nothing else there but Micro, Bucket and Number.
	Value    plan.Kind
	From, To plan.ActorID
	At       Point
	For      time.Duration
	Factor   float64
	// Times is how often it strikes in all; 0 stands for once.
	Times int
}

// Where is the actor whose operation the point is; empty for a fault that strikes a message.
func (f Fault) Where() plan.ActorID {
	if f.At.Actor != "" {
		return f.At.Actor
	}
	return f.Actor
}

// OfAnActor says that it strikes an actor, and OfAMessage that it strikes a message.
func (f Fault) OfAnActor() bool  { return f.Kind.target() == anActor }
func (f Fault) OfAMessage() bool { return f.Kind.target() == aMessage }

// String is the line of the text form.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.Kind.String())
	switch f.Kind.target() {
	case anActor:
		fmt.Fprintf(&b, " %s", f.Actor)
	case aNode:
		fmt.Fprintf(&b, " %d", f.Node)
	case someNodes:
		sep := " "
		for _, n := range f.Nodes {
			b.WriteString(sep + strconv.Itoa(n))
			sep = ","
		}
	case someShares:
		fmt.Fprintf(&b, " %s", f.Shares)
	case aMessage:
		fmt.Fprintf(&b, " %s from %s to %s", word(f.Value), orAny(f.From), orAny(f.To))
	}
	b.WriteString(" at" + f.At.String())
	if f.For != 0 {
		fmt.Fprintf(&b, " for %s", f.For)
	}
	if f.Factor != 0 {
		fmt.Fprintf(&b, " factor %s", strconv.FormatFloat(f.Factor, 'g', -1, 64))
	}
	if f.Times != 0 {
		fmt.Fprintf(&b, " times %d", f.Times)
	}
	return b.String()
}

func (p Point) String() string {
	var b strings.Builder
	if p.Actor != "" {
		fmt.Fprintf(&b, " %s", p.Actor)
	}
	if p.Op != 0 {
		fmt.Fprintf(&b, " %s", p.Op)
	}
	if p.Value != 0 {
		fmt.Fprintf(&b, " value %s", word(p.Value))
	}
	if p.Micro != Any {
		fmt.Fprintf(&b, " micro-batch %d", p.Micro)
	}
	if p.Bucket != Any {
		fmt.Fprintf(&b, " bucket %d", p.Bucket)
	}
	if p.Number != 0 {
		fmt.Fprintf(&b, " number %d", p.Number)
	}
	if b.Len() == 0 {
		b.WriteString(" any")
	}
	fmt.Fprintf(&b, " of %s step %d", p.Round.Phase, p.Round.Step)
	return b.String()
}

// word is the name of a kind of value without spaces.
func word(k plan.Kind) string {
	if k == 0 {
		return "any"
	}
	return strings.ReplaceAll(k.String(), " ", "-")
}

func orAny(a plan.ActorID) string {
	if a == "" {
		return "any"
	}
	return string(a)
}

// Format is the text form of a list.
func Format(faults []Fault) string {
	var b strings.Builder
	for _, f := range faults {
		b.WriteString(f.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Unstruck is what people are told of a fault that has not struck by the end of a run.
func (f Fault) Unstruck() string {
	return fmt.Sprintf("note: the fault %q never struck: the run did not come to its point", f)
}

// Check says whether faults can strike in a run of a plan over nodes 0 to nodes-1.
func Check(faults []Fault, p *plan.Plan, nodes int) error {
	known := map[plan.ActorID]bool{"": true}
	for _, a := range p.Actors {
		known[a.ID] = true
	}
	for i, f := range faults {
		for _, a := range []plan.ActorID{f.Actor, f.From, f.To, f.At.Actor} {
			if !known[a] {
				return fmt.Errorf("fault %d (%s): the plan has no actor %s", i+1, f, a)
			}
		}
		for _, n := range append([]int{f.Node}, f.Nodes...) {
			if n < 0 || n >= nodes {
				return fmt.Errorf("fault %d (%s): there is no node %d; 0 to %d are legal", i+1, f, n, nodes-1)
			}
		}
		if op := f.At.Op; op != 0 && op != plan.Receive && !f.OfAMessage() {
			program := p.Program(f.Where(), f.At.Round.Phase)
			if program == nil || !slices.ContainsFunc(program.Ops, func(o plan.Op) bool { return o.Kind == op }) {
				return fmt.Errorf("fault %d (%s): %s has no operation %s in %s", i+1, f, f.Where(), op, f.At.Round.Phase)
			}
		}
		if f.Kind == FillDisk && f.Node != 0 {
			return fmt.Errorf("fault %d (%s): it is node 0 that writes; the others have nothing on a disk", i+1, f)
		}
		if cut := slices.Compact(slices.Sorted(slices.Values(f.Nodes))); f.Kind == Partition && len(cut) == nodes {
			return fmt.Errorf("fault %d (%s): it names all nodes, and nobody is left for them to be cut off from", i+1, f)
		}
		if f.Kind == Shift && f.At.Actor != plan.Trainer {
			return fmt.Errorf("fault %d (%s): it is the trainer that opens steps by shares; a point at the trainer is legal", i+1, f)
		}
		if _, err := p.Deal(f.Shares); err != nil {
			return fmt.Errorf("fault %d (%s): %w", i+1, f, err)
		}
	}
	return nil
}
