package supervisor

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/checkpoint"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
)

// injector lets faults strike the actors and messages of one node, and the node itself. Where the point of a fault has come, node 0
// says whether it strikes: its injector is the referee, which lives as long as the run, over all processes and attempts. What is not
// for the actor or message at the point, the referee does itself or has the nodes do that it concerns.
type injector struct {
	scene
	faults []fault.Fault
	// asks asks the referee whether a fault strikes; nil on node 0.
	asks func(fault int, count uint64) (bool, error)
	referee

	mu      sync.Mutex
	matcher *fault.Matcher
	asked   []uint64 // by fault
	done    int      // strikes of the referee's list that are seen to
	slow    map[plan.ActorID]slowdown
	full    time.Time // until then the disk is full
	// reshare has steps run by other shares; nil where the trainer does not live.
	reshare func(plan.Shares)
	// harm does harm to an actor, if it lives on this node. Nil while there is no node.
	harm func(plan.ActorID, actors.Harm) bool
}

// scene is what faults strike in a process.
type scene struct {
	// node is its number, of nodes.
	node, nodes int
	host        HostFaults
	valve       *actors.Valve
	clock       *actors.Clock
	note        func(string)
}

type slowdown struct {
	factor float64
	until  time.Time // zero: for ever
}

// HostFaults does to the processes of nodes what faults ask for. An error says that a process is not within reach.
type HostFaults interface {
	// Kill ends the process of a node at once.
	Kill(node int) error
	// Pause stops the process of a node, and lets it go on after d.
	Pause(node int, d time.Duration) error
}

// newInjector returns nil when there are no faults. The error is a *plan.JobError for a fault that cannot strike.
func newInjector(faults []fault.Fault, p *plan.Plan, at scene) (*injector, error) {
	if len(faults) == 0 {
		return nil, nil
	}
	if err := checkFaults(faults, p, at.nodes); err != nil {
		return nil, &plan.JobError{Where: "--fault", Problem: err.Error()}
	}
	i := &injector{
		scene: at, faults: faults, referee: newReferee(),
		matcher: fault.NewMatcher(faults), asked: make([]uint64, len(faults)), slow: map[plan.ActorID]slowdown{},
	}
	if at.node == 0 { // the others write nothing
		checkpoint.OnWrite(i.write)
	}
	return i, nil
}

// checkFaults refuses what no process could do.
func checkFaults(faults []fault.Fault, p *plan.Plan, nodes int) error {
	for i, f := range faults {
		why := ""
		switch f.Kind {
		case fault.KillNode, fault.PauseNode, fault.Partition:
			if nodes == 1 {
				why = "there is one process, which is the run"
			}
		case fault.Corrupt:
			if nodes == 1 {
				why = "messages do not go over a wire in one process"
			}
		}
		if why != "" {
			return fmt.Errorf("fault %d (%s): %s", i+1, f, why)
		}
	}
	return fault.Check(faults, p, nodes)
}

// tells has the injector of node 0 reach the root of the attempt that begins.
func (i *injector) tells(o *root) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reshare = func(s plan.Shares) { o.inbox.add(forced{s}) }
}

// joins has the injector of another node ask the referee, and see to the strikes that are new to the node, each time that it has
// joined: it may have another number then. What struck while it was no part of the run is not for it; between two attempts
// it was.
func (i *injector) joins(m *actors.Member, between bool) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.node, i.asks = m.Index(), m.Reached
	if !between {
		i.done = m.Welcome().Struck
	}
}

// on has the injector reach the actors of a node.
func (i *injector) on(n *actors.Node) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.harm = n.Harm
}

// faultsOf is the interface value of an injector that may be nil.
func faultsOf(i *injector) actors.Faults {
	if i == nil {
		return nil
	}
	return i
}

// refereeOf is the interface value of the injector of node 0 that may be nil.
func refereeOf(i *injector) actors.Referee {
	if i == nil {
		return nil
	}
	return i
}

// Op is the harm at a point of an actor's program.
func (i *injector) Op(a plan.ActorID, r plan.Round, op *plan.Op) actors.Harm {
	i.mu.Lock()
	reached := i.matcher.Reached(a, r, op)
	i.mu.Unlock()
	var h actors.Harm
	for _, n := range reached {
		if f := i.faults[n]; i.due(n) && atHand(f) {
			i.note(fmt.Sprintf("fault: %s", f))
			h = h.And(i.befalls(f))
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if s, ok := i.slow[a]; ok && (s.until.IsZero() || time.Now().Before(s.until)) {
		h.Slow = s.factor
	}
	return h
}

// atHand says that a fault is for the actor or the message at its point.
func atHand(f fault.Fault) bool { return f.OfAMessage() || f.OfAnActor() && f.Where() == f.Actor }

// befalls is the harm to the actor that a fault strikes, which lives on this node.
func (i *injector) befalls(f fault.Fault) actors.Harm {
	switch f.Kind {
	case fault.Kill:
		return actors.Harm{Kill: true}
	case fault.Panic:
		return actors.Harm{Panic: true}
	case fault.Hang:
		if f.For == 0 {
			return actors.Harm{Hang: -1}
		}
		return actors.Harm{Hang: f.For}
	}
	s := slowdown{factor: f.Factor}
	if f.For > 0 {
		s.until = time.Now().Add(f.For)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.slow[f.Actor] = s
	return actors.Harm{}
}

// due asks the referee whether fault number n strikes here. A node that gets no answer counts for itself.
func (i *injector) due(n int) bool {
	i.mu.Lock()
	asks, count := i.asks, i.asked[n]
	i.asked[n]++
	i.mu.Unlock()
	if asks == nil {
		return i.counted(n)
	}
	strikes, err := asks(n, count)
	i.mu.Lock()
	switch {
	case err != nil:
		strikes = i.matcher.Strike(n)
	case strikes:
		i.matcher.Strike(n)
	default:
		i.matcher.End(n)
	}
	i.mu.Unlock()
	if f := i.faults[n]; err != nil && strikes && !atHand(f) && i.concerns(f) {
		i.note(fmt.Sprintf("fault: %s; node 0 does not answer, so this node strikes by its own count, and only itself", f))
		i.carryOut(f)
	}
	return strikes
}

// Struck carries out the strikes of the referee's list that are new.
func (i *injector) Struck(s actors.Strikes) {
	i.mu.Lock()
	from := max(i.done, s.Forgotten) - s.Forgotten
	i.done = max(i.done, s.Until())
	node := i.node
	i.mu.Unlock()
	for k := from; k < len(s.Faults); k++ {
		n := s.Faults[k]
		if n >= len(i.faults) {
			continue
		}
		if f := i.faults[n]; f.Node == node && f.Kind != fault.Partition && !f.OfAnActor() {
			i.note(fmt.Sprintf("fault: %s", f))
		}
		i.carryOut(i.faults[n])
	}
}

// concerns says whether carryOut would do something.
func (i *injector) concerns(f fault.Fault) bool {
	i.mu.Lock()
	node, harm, reshare := i.node, i.harm, i.reshare
	i.mu.Unlock()
	switch {
	case f.Kind == fault.Partition:
		return i.valve != nil
	case f.Kind == fault.Shift:
		return reshare != nil
	case f.OfAnActor():
		return harm != nil && harm(f.Actor, actors.Harm{})
	}
	return f.Node == node
}

// carryOut does what of a strike concerns this node. It reports whether anything did.
func (i *injector) carryOut(f fault.Fault) bool {
	i.mu.Lock()
	node, harm, reshare := i.node, i.harm, i.reshare
	i.mu.Unlock()
	err := error(nil)
	switch {
	case f.Kind == fault.Partition && i.valve != nil:
		i.valve.Cut(f.Nodes, f.For)
	case f.Kind == fault.Shift && reshare != nil:
		reshare(f.Shares)
	case f.OfAnActor():
		if harm == nil || !harm(f.Actor, actors.Harm{}) {
			return false
		}
		harm(f.Actor, i.befalls(f))
	case f.Node != node:
		return false
	case f.Kind == fault.FillDisk:
		i.mu.Lock()
		i.full = time.Now().Add(f.For)
		i.mu.Unlock()
	case f.Kind == fault.JumpClock && i.clock != nil:
		i.clock.Jump(f.For)
	case f.Kind == fault.KillNode && i.host != nil:
		err = i.host.Kill(f.Node)
	case f.Kind == fault.PauseNode && i.host != nil:
		err = i.host.Pause(f.Node, f.For)
	default:
		err = errors.New("this node cannot do it")
	}
	if err != nil {
		i.note(fmt.Sprintf("fault %s did not strike: %v", f, err))
	}
	return true
}

// missed tells at the end of a run of the faults that have not struck.
func (i *injector) missed() {
	if i == nil {
		return
	}
	i.mu.Lock()
	missed := i.matcher.Missed()
	i.mu.Unlock()
	for _, f := range missed {
		i.note(f.Unstruck())
	}
}

// write fails the writes to a disk that is full.
func (i *injector) write() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Now().Before(i.full) {
		return syscall.ENOSPC
	}
	return nil
}

// Message is the harm to a message.
func (i *injector) Message(n machine.Name) actors.MessageHarm {
	i.mu.Lock()
	reached := i.matcher.Sent(n.From, n.To, n.Round, n.Value)
	i.mu.Unlock()
	var h actors.MessageHarm
	for _, n := range reached {
		if !i.due(n) {
			continue
		}
		f := i.faults[n]
		i.note(fmt.Sprintf("fault: %s", f))
		switch f.Kind {
		case fault.Drop:
			h.Drop = true
		case fault.Duplicate:
			h.Duplicate = true
		case fault.Delay:
			h.Delay = f.For
		case fault.Reorder:
			h.Delay = reorderDelay
		case fault.Corrupt:
			h.Corrupt = true
		}
	}
	return h
}

// reorderDelay is how long a message that is to be overtaken is held back.
const reorderDelay = 50 * time.Millisecond
