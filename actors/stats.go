package actors

import (
	"sync"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

// Traffic is what sent bytes are counted by.
type Traffic uint8

const (
	// Activation goes forward between stages, and Gradient (of activations) backward.
	Activation Traffic = iota
	Gradient
	// Reduce is gradients of parameters on their way to the shards; Gather is parameters on their way back.
	Reduce
	Gather
	// Control is all else: tokens, losses, norms, verdicts, reports, states.
	Control
	traffics
)

func (t Traffic) String() string {
	return [...]string{"activation", "gradient", "reduce", "gather", "control"}[t]
}

// TrafficOf says how a value is counted.
func TrafficOf(k plan.Kind) Traffic {
	switch k {
	case plan.Activation:
		return Activation
	case plan.ActivationGrad:
		return Gradient
	case plan.Gradient:
		return Reduce
	case plan.Parameters:
		return Gather
	}
	return Control
}

// Sent is bytes of payloads sent, by traffic. Messages within a process count like all others.
type Sent [traffics]int64

// Map returns the bytes by the names of the traffics.
func (s Sent) Map() map[string]int64 {
	m := make(map[string]int64, traffics)
	for t := range traffics {
		m[t.String()] = s[t]
	}
	return m
}

// Add adds o to s.
func (s *Sent) Add(o Sent) {
	for t := range o {
		s[t] += o[t]
	}
}

// Stats is what an actor has done since it was spawned, and what it does now.
type Stats struct {
	Actor       plan.ActorID
	Node        int
	Incarnation int
	// Opened is the round that it opened last.
	Opened plan.Round
	// Wait is what its machine waited for when it was last looked at.
	Wait machine.Wait
	// Progress counts the messages that the machine took and the operations that completed.
	Progress uint64
	// Failure is why it cannot go on, or empty.
	Failure string
	// Busy is the time its operations took.
	Busy time.Duration
	// Compute is the part of Busy that F, B and W took.
	Compute time.Duration
	Sent    Sent
	// Moved is the part of Sent that went to other nodes.
	Moved Sent
	// Peak and Held are the bytes of its account.
	Peak, Held int64
	Refused    uint64
	// Unacknowledged is the bytes that it sent to other nodes and that have not been acknowledged;
	// Resent is the chunks that had to be sent more than once.
	Unacknowledged int64
	Resent         uint64
}

// ledger is where a shell keeps its stats. Others read it at any time.
type ledger struct {
	mu    sync.Mutex
	stats Stats
	// asked is when the actor was first asked for its Wait, of the times that it has not answered.
	asked time.Time

	// Of the round that is open: when it was opened, and what the stats were then.
	round  plan.Round
	opened time.Time
	before Stats
	// first and last are when the first F, B or W of the round began and the last ended.
	first, last time.Time
}

// completed takes down an operation.
func (l *ledger) completed(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Progress++
	l.stats.Busy += f.elapsed
	switch f.launch.Op.Kind {
	case plan.Forward, plan.BackwardInput, plan.BackwardWeight:
		l.stats.Compute += f.elapsed
		if l.first.IsZero() {
			l.first = f.began
		}
		l.last = f.began.Add(f.elapsed)
	}
}

func (l *ledger) update(change func(*Stats)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.stats)
}

// deafAfter is how long an actor may take to answer what it waits for. None blocks while it handles a message, but to ask
// whether a fault strikes: one that takes longer hangs in that, and what it said before is out of date.
const deafAfter = refereeWait

// handling is the operation of an actor that does not answer.
const handling = "the handling of a message"

func (l *ledger) read(now time.Time) Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.stats
	if !l.asked.IsZero() && now.Sub(l.asked) >= deafAfter {
		x.Wait = machine.Wait{Round: x.Opened, Op: handling, Running: true}
	}
	return x
}

// ask takes down that the actor is asked for its Wait; answer is what it says.
func (l *ledger) ask(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.IsZero() || l.asked.After(now) { // the clock went back
		l.asked = now
	}
}

func (l *ledger) answer(w machine.Wait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Wait, l.asked = w, time.Time{}
}

// open begins a round.
func (l *ledger) open(r plan.Round, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Opened = r
	l.round, l.opened, l.before = r, now, l.stats
	l.first, l.last = time.Time{}, time.Time{}
}

// inRound returns the stats of the round that is open, all since the actor was spawned, the time
// since the round was opened, and that from the start of its first F, B or W to the end of the last.
func (l *ledger) inRound(now time.Time) (round, all Stats, elapsed, window time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	round = l.stats
	round.Busy -= l.before.Busy
	round.Compute -= l.before.Compute
	for t := range round.Sent {
		round.Sent[t] -= l.before.Sent[t]
		round.Moved[t] -= l.before.Moved[t]
	}
	if !l.opened.IsZero() {
		elapsed = now.Sub(l.opened)
	}
	return round, l.stats, elapsed, l.last.Sub(l.first)
}
