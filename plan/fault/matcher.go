package fault

import "github.com/troupe-train/troupe/plan"

// Matcher says which faults are due. It is not safe for concurrent use.
type Matcher struct {
	faults []Fault
	// seen counts what has matched, and struck how often a fault was due.
	seen, struck []int
	ended        []bool
}

// NewMatcher starts with no fault struck.
func NewMatcher(faults []Fault) *Matcher {
	return &Matcher{faults: faults, seen: make([]int, len(faults)), struck: make([]int, len(faults)), ended: make([]bool, len(faults))}
}

// At returns the faults that are due when an actor is about to begin an operation in a round. op is
// of the kind Receive when a message has come, with its value in Writes, and Send when one goes out.
func (m *Matcher) At(a plan.ActorID, r plan.Round, op *plan.Op) []Fault {
	return m.strike(m.Reached(a, r, op))
}

// Message returns the faults that strike a message that is being sent.
func (m *Matcher) Message(from, to plan.ActorID, r plan.Round, v plan.Value) []Fault {
	return m.strike(m.Sent(from, to, r, v))
}

func (m *Matcher) strike(reached []int) []Fault {
	var due []Fault
	for _, i := range reached {
		if m.Strike(i) {
			due = append(due, m.faults[i])
		}
	}
	return due
}

// Reached returns, by their numbers in the list from 0, the faults whose point is here, as At does, but leaves it to the caller
// whether they strike: somebody else may count that.
func (m *Matcher) Reached(a plan.ActorID, r plan.Round, op *plan.Op) []int {
	var reached []int
	for i := range m.faults {
		f := &m.faults[i]
		if f.Kind.target() != aMessage && f.Where() == a && f.At.Round == r.Bare() && f.At.matches(op) && m.see(i) {
			reached = append(reached, i)
		}
	}
	return reached
}

// Sent is to Message what Reached is to At.
func (m *Matcher) Sent(from, to plan.ActorID, r plan.Round, v plan.Value) []int {
	var reached []int
	for i := range m.faults {
		f := &m.faults[i]
		if f.Kind.target() != aMessage || f.From != "" && f.From != from || f.To != "" && f.To != to || f.Value != 0 && f.Value != v.Kind {
			continue
		}
		if f.At.Round == r.Bare() && match(f.At.Micro, v.Lo) && match(f.At.Bucket, v.Index) && m.see(i) {
			reached = append(reached, i)
		}
	}
	return reached
}

// Strike counts a strike of fault number i and reports true, if it has not struck as often as it may.
func (m *Matcher) Strike(i int) bool {
	if m.over(i) {
		return false
	}
	m.struck[i]++
	return true
}

// End has fault number i not strike any more.
func (m *Matcher) End(i int) { m.ended[i] = true }

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

// see counts that the point of a fault has come. It reports whether the fault may strike there.
func (m *Matcher) see(i int) bool {
	m.seen[i]++
	return m.seen[i] > m.faults[i].At.Number && !m.over(i)
}

func (m *Matcher) over(i int) bool { return m.ended[i] || m.struck[i] >= max(m.faults[i].Times, 1) }

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
