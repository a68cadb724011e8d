package supervisor

import (
	"fmt"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/plan/fault"
)

// referee is what the injector of node 0 knows of all nodes. injector.mu guards it.
type referee struct {
	// answers are those to nodes: a question that is asked again gets the answer that it had. A node that was told no does not ask
	// of that fault again, so there are few.
	answers map[question]bool
	list    actors.Strikes
	news    chan struct{} // of capacity 1
}

// question is one of a session about a fault.
type question struct {
	session string
	fault   int
	count   uint64
}

// mostStrikes bounds the list that goes out with every beat. So many do not happen between two beats that arrive.
const mostStrikes = 64

func newReferee() referee {
	return referee{answers: map[question]bool{}, news: make(chan struct{}, 1)}
}

// counted counts for all nodes that the point of fault number n has come, and has it strike if it is due. The result says
// whether it is; what is for the actor or message at the point is left to the caller.
func (i *injector) counted(n int) bool {
	i.mu.Lock()
	due := i.matcher.Strike(n)
	i.mu.Unlock()
	if due {
		i.strike(n)
	}
	return due
}

// Reached answers another node.
func (i *injector) Reached(session string, n int, count uint64) bool {
	if n < 0 || n >= len(i.faults) {
		return false
	}
	q := question{session, n, count}
	i.mu.Lock()
	due, before := i.answers[q]
	if !before {
		due = i.matcher.Strike(n)
		i.answers[q] = due
	}
	i.mu.Unlock()
	if due && !before {
		i.strike(n)
	}
	return due
}

// strike does what is not for the actor or message at the point: here, if it can be done from here, or else by the node that it
// concerns.
func (i *injector) strike(n int) {
	f := i.faults[n]
	if atHand(f) {
		return
	}
	i.note(fmt.Sprintf("fault: %s", f))
	if i.host != nil {
		switch f.Kind {
		case fault.KillNode:
			if i.host.Kill(f.Node) == nil {
				return
			}
		case fault.PauseNode:
			if i.host.Pause(f.Node, f.For) == nil {
				return
			}
		}
	}
	if i.carryOut(f) && f.Kind != fault.Partition || i.nodes == 1 {
		return
	}
	i.mu.Lock()
	s := &i.list
	if s.Faults = append(s.Faults, n); len(s.Faults) > mostStrikes {
		s.Forgotten, s.Faults = s.Forgotten+1, s.Faults[1:]
	}
	i.mu.Unlock()
	select {
	case i.news <- struct{}{}:
	default:
	}
}

// Strikes are those that other nodes are to see to.
func (i *injector) Strikes() actors.Strikes {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.list
	s.Faults = append([]int(nil), s.Faults...)
	return s
}

// News is told of a new strike.
func (i *injector) News() <-chan struct{} { return i.news }
