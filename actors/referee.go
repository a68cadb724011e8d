package actors

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/messages"
)

// Referee counts for all nodes of a run how often each fault has struck. It lives on node 0. The node at which the point of a
// fault has come asks whether it strikes; what it does elsewhere than there is in a list that goes out with every beat. Its
// functions are called from many goroutines and must not wait for any of them.
type Referee interface {
	// Reached answers a node that has come to the point of a fault. A session that asks again with the same count gets the
	// same answer.
	Reached(session string, fault int, count uint64) bool
	// Strikes are those so far that the nodes are to see to, and News is told that there is another.
	Strikes() Strikes
	News() <-chan struct{}
}

// Strikes are the numbers of faults that have struck, in the order in which they did.
type Strikes struct {
	// Forgotten is how many there were before those in Faults.
	Forgotten int
	Faults    []int
}

// Until is how many there were in all.
func (s Strikes) Until() int { return s.Forgotten + len(s.Faults) }

func protoStrikes(s Strikes) *messages.Strikes {
	p := &messages.Strikes{Forgotten: uint64(s.Forgotten)}
	for _, f := range s.Faults {
		p.Faults = append(p.Faults, uint32(f))
	}
	return p
}

func planStrikes(p *messages.Strikes) Strikes {
	s := Strikes{Forgotten: int(p.GetForgotten())}
	for _, f := range p.GetFaults() {
		s.Faults = append(s.Faults, int(f))
	}
	return s
}

func (c *Coordinator) valve() *Valve { return c.node.options.Server.options.Valve }

// reached answers a node that has come to the point of a fault. One that was given up gets no answer.
func (c *Coordinator) reached(x *messages.Control, m *nats.Msg) {
	r := x.GetReached()
	if r == nil || m.Reply == "" || c.options.Referee == nil || c.valve().shut(int(r.Node)) || !c.member(int(r.Node), x.Session) {
		return
	}
	v := &messages.Verdict{Strikes: c.options.Referee.Reached(x.Session, int(r.Fault), r.Count)}
	if err := c.control.send(&messages.Control{Body: &messages.Control_Verdict{Verdict: v}}, m.Respond); err != nil {
		c.node.log("control: %v", err)
	}
}

// member reports whether a session is that of a node that is part of the run.
func (c *Coordinator) member(node int, session string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return node < len(c.members) && c.members[node] != nil && c.members[node].session == session && !c.members[node].gone
}

// refereeWait is how long a node waits for the referee. The actor at whose point the fault is waits as long, so it is short.
const refereeWait = 500 * time.Millisecond

// Reached asks the referee whether a fault strikes whose point has come on this node. count counts what this member has asked of
// the fault, from 0. The error says that there is no answer.
func (m *Member) Reached(fault int, count uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), refereeWait)
	defer cancel()
	if err := m.server.options.Valve.pass(ctx, 0); err != nil {
		return false, err
	}
	answer, err := m.control.ask(ctx, reachedSubject, &messages.Control{Body: &messages.Control_Reached{Reached: &messages.Reached{
		Node: uint32(m.index), Fault: uint32(fault), Count: count,
	}}})
	if err != nil {
		return false, err
	}
	v := answer.GetVerdict()
	if v == nil {
		return false, errors.New("actors: the coordinator answers a question about a fault with something else")
	}
	return v.Strikes, nil
}

// struck tells the faults of the node, if it is up, of the strikes so far.
func (m *Member) struck(s *messages.Strikes) {
	m.mu.Lock()
	node := m.node
	m.mu.Unlock()
	if s != nil && node != nil && node.options.Faults != nil {
		node.options.Faults.Struck(planStrikes(s))
	}
}
