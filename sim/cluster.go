package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/supervisor"
)

// cluster is the nodes of a simulation, the faults that strike them, and the root of supervision, which answers.
type cluster struct {
	*Cluster
	w        *world
	nodes    []node
	recovery *supervisor.Recovery
	// open is the round that is open, as the trainer's journal has it.
	open plan.Round
	// shares are those that the trainer was told last.
	shares plan.Shares
	// clock is what has been added to the clock of the root.
	clock time.Duration
	// taken are the messages that have come, for the mistake EarlyTrim.
	taken map[machine.Name]bool
	// woken is the time for which a Tick is due.
	woken time.Time
}

// node is a process that holds actors.
type node struct {
	gone bool // the process has ended
	lost bool // the root holds it for gone
	// pausedUntil is when a node goes on that has been stopped; side is the part of the network that it is in, 0 that of
	// node 0, and healed when it is back there.
	pausedUntil time.Duration
	side        int
	healed      time.Duration
}

// resend is how long a link waits before it sends a frame again that has not arrived well.
const resend = 20 * time.Millisecond

// ErrResume is the end of a simulation whose recovery goes back to a checkpoint.
var ErrResume = errors.New("the job goes back to a checkpoint")

func newCluster(w *world, c *Cluster) *cluster {
	if c.Heartbeat == 0 {
		c.Heartbeat = time.Second
	}
	if c.Faults == nil {
		c.Faults = fault.NewMatcher(nil)
	}
	if c.Deadline == 0 {
		c.Deadline = 10 * time.Second
	}
	x := &cluster{Cluster: c, w: w, open: plan.Round{Phase: plan.InitPhase}}
	most := 0
	var workers []int
	for _, a := range c.Plan.Actors {
		most = max(most, a.Node)
		w.byID[a.ID].node = a.Node
	}
	x.nodes = make([]node, max(c.Nodes, most+1))
	for n := range x.nodes {
		if n > 0 || len(x.nodes) == 1 {
			workers = append(workers, n)
		}
	}
	x.recovery = supervisor.NewRecovery(c.Limits, supervisor.Seats(c.Plan), workers)
	return x
}

func (c *cluster) time() time.Time { return time.Unix(0, 0).Add(c.w.now + c.clock) }

// tell tells the root of something, and does what it decides.
func (c *cluster) tell(e supervisor.RecoveryEvent) {
	for _, d := range c.recovery.Handle(c.time(), e) {
		c.w.result.Decisions = append(c.w.result.Decisions, fmt.Sprintf("%s %s", c.w.now, d))
		if c.w.Trace != nil {
			fmt.Fprintf(c.w.Trace, "%s root decides: %s\n", c.w.now, d)
		}
		switch d := d.(type) {
		case supervisor.Respawn:
			c.respawn(d)
		case supervisor.Resume:
			c.w.stopped, c.w.err = true, fmt.Errorf("%w: %s", ErrResume, d.Reason)
		case supervisor.GiveUp:
			c.w.stopped, c.w.err = true, fmt.Errorf("sim: the recovery gives up: %s: %w", d.Reason, d.Err)
		}
	}
	if at, ok := c.recovery.Next(); ok && at.After(c.time()) && at != c.woken {
		c.woken = at
		c.w.later(at.Sub(c.time()), func() {
			c.woken = time.Time{}
			c.tell(supervisor.Tick{})
		})
	}
}

// respawn begins a new life. The old one ends now if its node can be reached; else it goes on, unheard.
func (c *cluster) respawn(d supervisor.Respawn) {
	old := c.w.byID[d.Actor]
	if c.reachable(old.node) {
		c.w.kill(old)
	}
	lives := map[plan.ActorID]int{}
	for id, a := range c.w.byID {
		if a.incarnation > 0 && id != d.Actor {
			lives[id] = a.incarnation
		}
	}
	x, err := c.Respawn(Life{ID: d.Actor, Incarnation: d.Incarnation, Open: c.open, Shares: c.shares, Lives: lives})
	if err != nil {
		c.w.err = fmt.Errorf("sim: %s, incarnation %d: %w", d.Actor, d.Incarnation, err)
		return
	}
	a := c.w.bear(x, d.Incarnation)
	a.node = d.Node
	if c.w.result.Lives == nil {
		c.w.result.Lives = map[plan.ActorID]int{}
	}
	c.w.result.Lives[d.Actor] = d.Incarnation
	if d.Actor == plan.Trainer {
		c.w.happen(0, a, machine.Begin{})
		return
	}
	c.w.push(0, moment{to: plan.Trainer, event: machine.Restarted{Actor: d.Actor, Incarnation: d.Incarnation}})
}

// reachable says that a node hears the root.
func (c *cluster) reachable(n int) bool {
	x := &c.nodes[n]
	return !x.gone && x.side == 0 && x.pausedUntil <= c.w.now
}

// fails hears of a life that cannot go on.
func (c *cluster) fails(a *actor, f machine.Failed, cause error) {
	var corruption *machine.Corruption
	if errors.As(cause, &corruption) {
		c.w.err = fmt.Errorf("sim: %s (incarnation %d): %w", a.id, a.incarnation, cause)
		return
	}
	if errors.Is(cause, machine.ErrFenced) {
		return
	}
	c.w.later(c.w.delay(), func() { c.tell(supervisor.ActorFailed{Failed: f}) })
}

// dies hears of a life that ended without a word, in a process that goes on.
func (c *cluster) dies(a *actor) {
	wait := a.Machine.Waiting()
	f := machine.Failed{Actor: a.id, Incarnation: a.incarnation, Node: fmt.Sprintf("node %d", a.node), Round: wait.Round, Op: wait.Op,
		Cause: fmt.Sprintf("it is gone (fault %d)", c.Faults.Struck())}
	c.w.kill(a)
	c.w.later(c.w.delay(), func() { c.tell(supervisor.ActorFailed{Failed: f}) })
}

// opens hears that a life has opened a round.
func (c *cluster) opens(a *actor, r plan.Round) {
	if c.w.byID[a.id] != a {
		return
	}
	if a.id != plan.Trainer {
		if a.incarnation > 0 && !a.restored && r.Phase != plan.RecoverPhase {
			a.restored = true
			c.tell(supervisor.Restored{Actor: a.id, Incarnation: a.incarnation})
		}
		return
	}
	c.open = r
	c.tell(supervisor.Opened{Round: r})
	if a.incarnation > 0 {
		c.tell(supervisor.CaughtUp{Actor: a.id, Incarnation: a.incarnation})
	}
}

// lose tells the root that a node has been silent for too long, if it still is.
func (c *cluster) lose(n int) {
	c.w.later(c.Heartbeat, func() {
		if x := &c.nodes[n]; !c.reachable(n) && !x.lost {
			x.lost = true
			c.tell(supervisor.NodeLost{Node: n, Cause: fmt.Sprintf("no heartbeat for %s", c.Heartbeat)})
		}
	})
}

// back lets a node go on after a pause or a partition. If it was held for lost it learns that it is fenced: its
// lives end, and it joins again, empty.
func (c *cluster) back(n int) {
	x := &c.nodes[n]
	c.w.later(c.w.delay()+c.Heartbeat/5, func() {
		if x.gone || !x.lost || !c.reachable(n) {
			return
		}
		for _, a := range c.w.lives {
			if a.node == n && c.w.byID[a.id] != a {
				c.w.kill(a)
			}
		}
		x.lost = false
		c.tell(supervisor.NodeJoined{Node: n})
	})
}
