package sim

import (
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/supervisor"
)

// strike is what befalls an operation.
type strike struct {
	panics, hangs bool
	ends          time.Duration // of a hang; 0: never
}

// launches lets faults strike at an operation that is about to begin.
func (c *cluster) launches(a *actor, l machine.Launch) strike {
	if c.w.byID[a.id] != a {
		return strike{} // nobody waits for what it does
	}
	return c.strike(a, c.Faults.At(a.id, l.Round, l.Op))
}

// arrives lets faults strike at a message that has come. It reports true when nobody is left to receive it.
func (c *cluster) arrives(a *actor, e machine.Event) bool {
	m, ok := e.(machine.Arrived)
	if !ok || c.w.byID[a.id] != a {
		return false
	}
	n := m.Message.Name
	if n.Value.Kind != plan.Start {
		op := plan.Op{Kind: plan.Receive, Peer: n.From, Writes: []plan.Value{n.Value}}
		c.strike(a, c.Faults.At(a.id, n.Round, &op))
	}
	if a.id == plan.Trainer && !a.dead && n.Value.Kind == plan.Report {
		c.w.later(0, func() { c.tell(supervisor.CaughtUp{Actor: n.From, Incarnation: n.Incarnation}) })
	}
	return a.dead
}

// sends lets faults strike at a message that is about to be sent. It reports true when the sender is dead.
func (c *cluster) sends(a *actor, m machine.Message) bool {
	n := m.Name
	if n.Value.Kind != plan.Start && c.w.byID[a.id] == a {
		op := plan.Op{Kind: plan.Send, Peer: n.To, As: n.Value}
		c.strike(a, c.Faults.At(a.id, n.Round, &op))
	}
	return a.dead
}

// strike does what faults do to actors and nodes.
func (c *cluster) strike(a *actor, faults []fault.Fault) (s strike) {
	for _, f := range faults {
		victim := a
		if f.Actor != "" {
			victim = c.w.byID[f.Actor]
		}
		switch f.Kind {
		case fault.Kill:
			if !victim.dead {
				c.dies(victim)
			}
		case fault.Panic:
			if victim == a {
				s.panics = true
			} else if !victim.dead {
				c.dies(victim)
			}
		case fault.Hang:
			if victim == a {
				s.hangs, s.ends = true, f.For
				c.await(a)
			}
		case fault.Slow:
			victim.factor, victim.slow = f.Factor, c.w.now+f.For
			if f.For == 0 {
				victim.slow = 1<<62 - 1
			}
		case fault.KillNode:
			c.killNode(f.Node)
		case fault.PauseNode:
			c.pause(f.Node, f.For)
		case fault.Partition:
			c.cut(f.Nodes, f.For)
		case fault.Shift:
			c.reshare(f.Shares)
		case fault.FillDisk:
			c.fill(f.Node, f.For)
		case fault.JumpClock:
			if f.Node == 0 {
				c.clock += f.For
			}
		}
	}
	return s
}

// reshare has the trainer run the steps to come by other shares.
func (c *cluster) reshare(s plan.Shares) {
	counts, err := s.Counts()
	if err == nil {
		s = c.Plan.SharesOf(counts)
		_, err = c.Plan.Deal(s)
	}
	if err != nil {
		c.w.err = err
		return
	}
	c.shares = s
	c.w.push(0, moment{to: plan.Trainer, event: machine.Reshare{Shares: s}})
}

// await fails a life whose operation does not end.
func (c *cluster) await(a *actor) {
	wait := a.Machine.Waiting()
	c.w.later(c.Deadline, func() {
		if c.w.byID[a.id] == a && !a.dead && a.runs && a.hangs {
			c.fails(a, machine.Failed{Actor: a.id, Incarnation: a.incarnation, Round: wait.Round, Op: wait.Op, Cause: "it does not end"}, nil)
		}
	})
}

// killNode ends the process of a node. Half of the time, another is started in its place after a while. Node 0 is
// where the root lives: the job ends with it, and is started again by hand.
func (c *cluster) killNode(n int) {
	x := &c.nodes[n]
	if n == 0 || x.gone {
		return
	}
	x.gone = true
	for _, a := range c.w.lives {
		if a.node == n {
			c.w.kill(a)
		}
	}
	c.lose(n)
	if c.w.draw() < 0.5 {
		c.w.later(2*c.Heartbeat, func() {
			*x = node{lost: true}
			c.back(n)
		})
	}
}

func (c *cluster) pause(n int, d time.Duration) {
	if x := &c.nodes[n]; n > 0 && !x.gone {
		x.pausedUntil = max(x.pausedUntil, c.w.now+d)
		c.lose(n)
		c.w.later(d, func() { c.back(n) })
	}
}

// cut parts nodes from the others, who are with node 0.
func (c *cluster) cut(nodes []int, d time.Duration) {
	away := map[int]bool{}
	for _, n := range nodes {
		away[n] = true
	}
	for n := range c.nodes {
		if away[n] == away[0] {
			continue
		}
		x := &c.nodes[n]
		x.side, x.healed = 1, max(x.healed, c.w.now+d)
		c.lose(n)
		c.w.later(d, func() {
			if x.healed <= c.w.now && x.side == 1 {
				x.side = 0
				c.back(n)
			}
		})
	}
}

// fill makes a disk full for some time.
func (c *cluster) fill(n int, d time.Duration) {
	if c.Disks == nil {
		return
	}
	if c.Disks.full == nil {
		c.Disks.full = map[int]bool{}
	}
	c.Disks.full[n] = true
	c.w.later(d, func() { c.Disks.full[n] = false })
}

// travels says what happens to a message on its way: how many more copies come, and how much later.
func (c *cluster) travels(m machine.Message) (copies int, late time.Duration) {
	n := m.Name
	for _, f := range c.Faults.Message(n.From, n.To, n.Round, n.Value) {
		switch f.Kind {
		case fault.Drop, fault.Corrupt:
			// A frame that is lost, or that has another checksum than its header says, is sent again by the link.
			late += resend
		case fault.Duplicate:
			copies++
		case fault.Delay:
			late += f.For
		case fault.Reorder:
			late += max(c.w.Network.DelayMax, time.Millisecond)
		}
	}
	return copies, late
}

// route finds the life that an event reaches, or says after which time to try again.
func (c *cluster) route(m *moment, a *actor) (*actor, time.Duration) {
	if m.actor == nil && m.from != nil && c.nodes[m.from.node].side != c.nodes[a.node].side {
		if to := c.across(m, a); to != nil {
			a = to
		} else {
			return nil, max(resend, max(c.nodes[m.from.node].healed, c.nodes[a.node].healed)-c.w.now)
		}
	}
	x := &c.nodes[a.node]
	if x.pausedUntil > c.w.now && !a.dead {
		return nil, x.pausedUntil - c.w.now
	}
	if e, ok := m.event.(machine.Arrived); ok && c.Plant == NoFencing {
		if from := c.w.byID[e.Message.Name.From]; from != nil {
			e.Message.Name.Incarnation = from.incarnation
			m.event = e
		}
	}
	return a, 0
}

// trim is the mistake EarlyTrim: what is sent again to a new life is left out when the life before had taken it.
func (c *cluster) trim(e machine.Event, effects []machine.Effect) []machine.Effect {
	switch e := e.(type) {
	case machine.Arrived:
		if c.taken == nil {
			c.taken = map[machine.Name]bool{}
		}
		c.taken[e.Message.Name] = true
	case machine.PeerIs:
		var rest []machine.Effect
		for _, x := range effects {
			if s, ok := x.(machine.Send); !ok || !c.taken[s.Message.Name] || s.Message.Name.To != e.Peer {
				rest = append(rest, x)
			}
		}
		return rest
	}
	return effects
}

// across finds who gets a message for an actor that is on the other side of the network: an older life
// of it on the sender's side, or nobody until the two sides are one again.
func (c *cluster) across(m *moment, a *actor) *actor {
	for _, old := range c.w.lives {
		if old.incarnation < m.from.told[a.id] {
			continue // the sender knows of a later life, and sends to that
		}
		if old.id == a.id && old != a && !old.dead && c.nodes[old.node].side == c.nodes[m.from.node].side {
			return old
		}
	}
	return nil
}
