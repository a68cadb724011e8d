package fault

import "github.com/troupe-train/troupe/plan"

// Matcher says which faults are due. It is not safe for concurrent use.
type Matcher struct {
	faults []Fault
	// seen counts what has matched, and struck how often a fault was due.
	seen, struck []int
}

// NewMatcher starts with no fault struck.
func NewMatcher(faults []Fault) *Matcher {
	return &Matcher{faults: faults, seen: make([]int, len(faults)), struck: make([]int, len(faults))}
}

// At returns the faults that are due when an actor is about to begin an operation in a round. op is
// of the kind Receive when a message has come, with its value in Writes, and Send when one goes out.
func (m *Matcher) At(a plan.ActorID, r plan.Round, op *plan.Op) []Fault {
	var due []Fault
	for i := range m.faults {
		f := &m.faults[i]
		if f.Kind.target() == aMessage {
			continue
		}
		at := f.At.Actor
		if at == "" {
			at = f.Actor
		}
		if at == a && f.At.Round == r.Bare() && f.At.matches(op) && m.count(i) {
			due = append(due, *f)
		}
	}
	return due
}

// Message returns the faults that strike a message that is being sent.
func (m *Matcher) Message(from, to plan.ActorID, r plan.Round, v plan.Value) []Fault {
	var due []Fault
	for i := range m.faults {
		f := &m.faults[i]
		if f.Kind.target() != aMessage || f.From != "" && f.From != from || f.To != "" && f.To != to || f.Value != 0 && f.Value != v.Kind {
			continue
		}
		if f.At.Round == r.Bare() && match(f.At.Micro, v.Lo) && match(f.At.Bucket, v.Index) && m.count(i) {
			due = append(due, *f)
		}
	}
	return due
}

// Struck is how many faults have been due at least once.
func (m *Matcher) Struck() int {
	n := 0
	for _, s := range m.struck {
		if s > 0 {
			n++
		}
	}
	return n
}

// Missed are the faults that have never been due.
func (m *Matcher) Missed() []Fault {
	var missed []Fault
	for i, s := range m.struck {
		if s == 0 {
			missed = append(missed, m.faults[i])
		}
	}
	return missed
}

// count counts a match, and reports whether the fault strikes.
func (m *Matcher) count(i int) bool {
	f := &m.faults[i]
	m.seen[i]++
	if m.seen[i] <= f.At.Number || m.struck[i] >= max(f.Times, 1) {
		return false
	}
	m.struck[i]++
	return true
}

func match(want, n int) bool { return want == Any || want == n }

func (p *Point) matches(op *plan.Op) bool {
	if p.Op != 0 && p.Op != op.Kind {
		return false
	}
	switch op.Kind {
	case plan.Send, plan.Receive, plan.Offer:
		v := op.As
		if op.Kind == plan.Receive {
			v = op.Writes[0]
		}
		return (p.Value == 0 || p.Value == v.Kind) && match(p.Micro, v.Lo) && match(p.Bucket, v.Index)
	}
	return p.Value == 0 && match(p.Micro, op.Micro) && match(p.Bucket, op.Bucket)
}
