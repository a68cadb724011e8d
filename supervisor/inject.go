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

// injector lets faults strike the actors, messages and processes of one node. What has struck does not strike again in a
// later life; a process that is started anew counts anew.
type injector struct {
	node int
	host HostFaults
	note func(string)

	mu      sync.Mutex
	matcher *fault.Matcher
	slow    map[plan.ActorID]slowdown
	full    time.Time // until then the disk is full
	// reshare has steps run by other shares; nil where the trainer does not live.
	reshare func(plan.Shares)
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

// newInjector returns nil when there are no faults. Of nodes nodes it is for node number node. The error is a
// *plan.JobError for a fault that cannot strike.
func newInjector(faults []fault.Fault, p *plan.Plan, node, nodes int, host HostFaults, note func(string)) (*injector, error) {
	if len(faults) == 0 {
		return nil, nil
	}
	if err := checkFaults(faults, p, nodes); err != nil {
		return nil, &plan.JobError{Where: "--fault", Problem: err.Error()}
	}
	i := &injector{node: node, host: host, note: note, matcher: fault.NewMatcher(faults), slow: map[plan.ActorID]slowdown{}}
	if node == 0 { // the others write nothing
		checkpoint.OnWrite(i.write)
	}
	return i, nil
}

// checkFaults refuses what no process could do.
func checkFaults(faults []fault.Fault, p *plan.Plan, nodes int) error {
	for i, f := range faults {
		why := ""
		switch f.Kind {
		case fault.JumpClock:
			why = "processes decide by clocks that do not jump; the simulator has clocks that do"
		case fault.Partition:
			why = "processes cannot be cut off from each other here; the simulator's can"
		case fault.KillNode, fault.PauseNode:
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

// at says which number the node has now.
func (i *injector) at(node int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.node = node
}

// tells has the injector tell the root of the attempt that begins what faults ask of it.
func (i *injector) tells(o *root) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reshare = func(s plan.Shares) { o.inbox.add(forced{s}) }
}

// faultsOf is the interface value of an injector that may be nil.
func faultsOf(i *injector) actors.Faults {
	if i == nil {
		return nil
	}
	return i
}

// Op is the harm at a point of an actor's program.
func (i *injector) Op(a plan.ActorID, r plan.Round, op *plan.Op) actors.Harm {
	i.mu.Lock()
	due := i.matcher.At(a, r, op)
	i.mu.Unlock()
	var h actors.Harm
	for _, f := range due {
		i.note(fmt.Sprintf("fault: %s", f))
		switch f.Kind {
		case fault.Kill:
			h.Kill = true
		case fault.Panic:
			h.Panic = true
		case fault.Hang:
			h.Hang = f.For
			if f.For == 0 {
				h.Hang = -1
			}
		case fault.Shift:
			i.mu.Lock()
			reshare := i.reshare
			i.mu.Unlock()
			if reshare != nil {
				reshare(f.Shares)
			}
		case fault.Slow:
			s := slowdown{factor: f.Factor}
			if f.For > 0 {
				s.until = time.Now().Add(f.For)
			}
			i.mu.Lock()
			i.slow[f.Actor] = s
			i.mu.Unlock()
		default:
			i.strike(f)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if s, ok := i.slow[a]; ok && (s.until.IsZero() || time.Now().Before(s.until)) {
		h.Slow = s.factor
	}
	return h
}

// strike does harm to a node.
func (i *injector) strike(f fault.Fault) {
	err := errors.New("this node cannot do it")
	switch {
	case f.Kind == fault.FillDisk && f.Node == i.node:
		i.mu.Lock()
		i.full = time.Now().Add(f.For)
		i.mu.Unlock()
		err = nil
	case i.node != 0 && f.Node != i.node:
		err = fmt.Errorf("node %d strikes itself only; the trainer's node strikes all", i.node)
	case f.Kind == fault.KillNode && i.host != nil:
		err = i.host.Kill(f.Node)
	case f.Kind == fault.PauseNode && i.host != nil:
		err = i.host.Pause(f.Node, f.For)
	}
	if err != nil {
		i.note(fmt.Sprintf("fault %s did not strike: %v", f, err))
	}
}

// missed tells of the faults that have not struck by the end of a run in one process.
func (i *injector) missed() {
	if i == nil {
		return
	}
	i.mu.Lock()
	missed := i.matcher.Missed()
	i.mu.Unlock()
	for _, f := range missed {
		i.note(fmt.Sprintf("note: the fault %q never struck: the run did not come to its point", f))
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
	due := i.matcher.Message(n.From, n.To, n.Round, n.Value)
	i.mu.Unlock()
	var h actors.MessageHarm
	for _, f := range due {
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
