package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

// ErrLeftBehind is in the chain when an operation of a retired actor does not end. It is left behind with
// what it works on: its stream and executor must not be closed.
var ErrLeftBehind = errors.New("an operation is left behind")

// retireWait is how long a node waits for an operation of a life that is over.
const retireWait = time.Second

// Retire ends the life that an actor has on this node, so that Spawn can begin another. Messages for it vanish until
// then: whoever sent them keeps them, and sends them again when it is told of the new life. It is not an
// error when the actor is not here, or the node is closed. An operation that runs is waited for until ctx ends.
func (n *Node) Retire(ctx context.Context, id plan.ActorID) error {
	n.mu.Lock()
	s := n.shells[id]
	if n.closed || s == nil {
		n.mu.Unlock()
		return nil
	}
	delete(n.shells, id)
	n.retired[id] = true
	n.mu.Unlock()
	close(s.retired)
	if n.transport != nil {
		n.transport.mute(s)
		n.transport.leave(id)
	}
	q := quit{make(chan struct{})}
	s.address.tell(q)
	for _, waited := range []<-chan struct{}{q.heard, s.work.idle()} {
		select {
		case <-waited:
		case <-ctx.Done():
			return fmt.Errorf("actors: %s: %w: %s", id, ErrLeftBehind, s.stats().Wait)
		}
	}
	s.address.tell(end{})
	return s.address.stop(ctx)
}

// announce tells the actors of this node of a peer's new life, and whoever tells those of other nodes.
func (n *Node) announce(p machine.PeerIs) {
	if l, ok := n.directory.get(p.Peer); ok && l.incarnation <= p.Incarnation {
		n.directory.learn(p.Peer, life{node: l.node, incarnation: p.Incarnation, round: p.Round, announced: true})
	}
	n.mu.RLock()
	announced := n.announced
	n.mu.RUnlock()
	if announced != nil {
		announced(p)
	}
	n.tell(p)
}

// settle makes the actors of this node those that the directory gives it: it retires the lives that are over, and
// begins those that are not there. It does nothing without Options.Spawn.
func (n *Node) settle() {
	if n.options.Spawn == nil {
		return
	}
	n.settling.Lock()
	defer n.settling.Unlock()
	for _, s := range n.locals() {
		if !n.over(s) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), retireWait)
		err := n.Retire(ctx, s.id)
		cancel()
		if err != nil {
			n.log("%v", err)
		}
		n.options.Exit(s.id, err != nil)
	}
	for _, id := range n.owed() {
		if err := n.begin(id); err != nil {
			l, _ := n.directory.get(id)
			n.failed(machine.Failed{Actor: id, Incarnation: l.incarnation, Node: n.options.Name, Round: l.round, Op: "its beginning", Cause: err.Error()})
		}
	}
	n.failures.kick()
}

// owed are the actors that the directory gives to this node and that are not alive on it.
func (n *Node) owed() []plan.ActorID {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var owed []plan.ActorID
	lives := n.directory.all()
	for _, id := range n.directory.order {
		l := lives[id]
		unborn, tried := n.unborn[id]
		if l.node == n.options.Index && l.incarnation > 0 && n.shells[id] == nil && !n.closed && !(tried && unborn >= l.incarnation) {
			owed = append(owed, id)
		}
	}
	return owed
}

// begin brings an actor to life that has come to this node.
func (n *Node) begin(id plan.ActorID) error {
	l, _ := n.directory.get(id)
	a, err := n.options.Spawn(id, l.incarnation)
	if err == nil {
		if err = n.Spawn(a); err == nil {
			return nil
		}
		n.options.Exit(id, false)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unborn[id] = l.incarnation
	return err
}
