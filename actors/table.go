package actors

import (
	"context"
	"fmt"
	"slices"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// announced puts a new life that the trainer announces into the table.
func (c *Coordinator) announced(machine.PeerIs) { c.publish() }

// publish says the table, which has changed, to all nodes.
func (c *Coordinator) publish() {
	c.mu.Lock()
	c.version++
	c.mu.Unlock()
	c.beat()
}

// Move fences all older lives of an actor, and gives it to a node: there, Options.Spawn brings it to
// life as that incarnation. It returns when it lives, or cannot; then the failure has been told besides, or the loss of
// the node. On a node 0 without Options.Spawn, the caller does that.
func (c *Coordinator) Move(ctx context.Context, id plan.ActorID, incarnation, node int) error {
	l, ok := c.node.directory.get(id)
	switch {
	case !ok:
		return fmt.Errorf("actors: %s is not in the placement: %w", id, ErrUnknownActor)
	case incarnation <= l.incarnation:
		return fmt.Errorf("actors: %s cannot begin its incarnation %d; it has come to %d", id, incarnation, l.incarnation)
	}
	c.node.learn(&messages.Table{Lives: []*messages.Incarnation{{Actor: string(id), Incarnation: uint32(incarnation), Node: int32(node)}}})
	if c.control != nil {
		c.publish()
	}
	c.node.settle()
	if node == 0 {
		return nil
	}
	for {
		c.mu.Lock()
		lives, err := c.lives(id, incarnation, node)
		changed := c.changed
		c.mu.Unlock()
		if lives || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("actors: %s does not begin its incarnation %d on node %d: %w", id, incarnation, node, context.Cause(ctx))
		}
	}
}

// lives reports whether a node has said that a life has begun on it. c.mu is held.
func (c *Coordinator) lives(id plan.ActorID, incarnation, node int) (bool, error) {
	if l, _ := c.node.directory.get(id); l.incarnation > incarnation || l.node != node {
		return false, fmt.Errorf("actors: %s is not to begin its incarnation %d on node %d any more", id, incarnation, node)
	}
	if node < 0 || node >= len(c.members) || c.members[node] == nil || c.members[node].gone {
		return false, fmt.Errorf("actors: %s cannot live on node %d, which is not there: %w", id, node, ErrLost)
	}
	for _, a := range c.members[node].actors {
		if a.Actor == id && a.Incarnation >= incarnation {
			return true, nil
		}
	}
	return false, nil
}

// lose gives a node up: its session is fenced, and no node has its actors. While the run gathers, its number is free for
// another one, which has them. It returns what is to be told without c.mu, which is held. last is what its actors did, for a
// run that ends by that.
func (c *Coordinator) lose(i int, cause, last string) func() {
	m := c.members[i]
	m.gone = true
	m.actors = nil
	c.silence.forget(i)
	c.wake()
	if c.phase == messages.Phase_PHASE_STOPPING {
		return func() {}
	}
	c.fenced = append(c.fenced, m.session)
	if c.phase == messages.Phase_PHASE_GATHERING {
		return func() {
			c.options.Progress(fmt.Sprintf("%s is gone before the run has begun: %s", m.name, cause))
			c.beat()
		}
	}
	c.node.directory.strand(i)
	c.version++
	return func() {
		if c.node.transport != nil {
			c.node.transport.reset()
		}
		c.beat()
		if c.options.Lost != nil {
			c.options.Lost(i, m.name, cause)
			return
		}
		c.node.failed(machine.Failed{Node: m.name, Cause: cause + last})
	}
}

// Ended says that a process is known to have ended, whatever number its node has by now.
func (c *Coordinator) Ended(origin int, cause error) {
	c.mu.Lock()
	tell := func() {}
	for i, m := range c.members {
		if m != nil && !m.gone && m.origin == origin && origin > 0 {
			tell = c.lose(i, cause.Error(), "")
			break
		}
	}
	c.mu.Unlock()
	tell()
}

// Origin is the number by which whoever started the process of a node knows it; 0 if nobody does. It is false where no node has
// the number.
func (c *Coordinator) Origin(node int) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if node < 0 || node >= len(c.members) || c.members[node] == nil || c.members[node].gone {
		return 0, false
	}
	return c.members[node].origin, true
}

// Left reports whether the node of a process has said goodbye.
func (c *Coordinator) Left(origin int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.members, func(m *memberState) bool { return m != nil && m.left && m.origin == origin })
}

// Lacks reports whether the node of a process is missing: not all nodes have joined, and it has not.
func (c *Coordinator) Lacks(origin int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := false
	for _, m := range c.members[1:] {
		switch {
		case m == nil || m.gone:
			free = true
		case m.origin == origin:
			return false
		}
	}
	return free
}

// Gathers reports whether the run has not begun yet.
func (c *Coordinator) Gathers() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase == messages.Phase_PHASE_GATHERING
}

// Fail ends Gather with an error: somebody knows that not all nodes will come.
func (c *Coordinator) Fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.give(err)
}
