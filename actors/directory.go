package actors

import (
	"sync"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// nowhere is the node of an actor that no node has: the one that had it is lost, and no other has been chosen.
const nowhere = -1

// life is the one life of an actor that counts: all older ones are fenced.
type life struct {
	node        int
	incarnation int
	// round is the one that it recovers into; it says nothing while announced is false.
	round     plan.Round
	announced bool
}

func (l life) peerIs(a plan.ActorID) machine.PeerIs {
	return machine.PeerIs{Peer: a, Incarnation: l.incarnation, Round: l.round}
}

// directory says where the actors of a run live. That of the coordinator is the one that the others follow.
//
// Invariant: the incarnation of an actor never goes down.
type directory struct {
	mu    sync.RWMutex
	order []plan.ActorID
	home  map[plan.ActorID]int // where the plan has placed it
	lives map[plan.ActorID]life
}

func newDirectory() *directory {
	return &directory{home: map[plan.ActorID]int{}, lives: map[plan.ActorID]life{}}
}

// place adds an actor, and reports where it is if it is there already.
func (d *directory) place(a plan.ActorID, node int) (int, bool) {
	if l, ok := d.lives[a]; ok {
		return l.node, false
	}
	d.order = append(d.order, a)
	d.home[a] = node
	d.lives[a] = life{node: node}
	return node, true
}

func (d *directory) get(a plan.ActorID) (life, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	l, ok := d.lives[a]
	return l, ok
}

// all are the lives of all actors. It is a copy.
func (d *directory) all() map[plan.ActorID]life {
	d.mu.RLock()
	defer d.mu.RUnlock()
	m := make(map[plan.ActorID]life, len(d.lives))
	for a, l := range d.lives {
		m[a] = l
	}
	return m
}

// learn takes in a life, unless a later one is known. It reports whether something is new, and whether the actor
// is to be announced.
func (d *directory) learn(a plan.ActorID, l life) (news, announce bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	have, ok := d.lives[a]
	if !ok || l.incarnation < have.incarnation || l == have {
		return false, false
	}
	if l.incarnation == have.incarnation && !l.announced {
		l.round, l.announced = have.round, have.announced
	}
	d.lives[a] = l
	return true, l.announced && (!have.announced || have.incarnation < l.incarnation || have.round.Before(l.round))
}

// strand takes all actors from a node, and returns them.
func (d *directory) strand(node int) []plan.ActorID {
	d.mu.Lock()
	defer d.mu.Unlock()
	var stranded []plan.ActorID
	for _, a := range d.order {
		if l := d.lives[a]; l.node == node {
			l.node = nowhere
			d.lives[a] = l
			stranded = append(stranded, a)
		}
	}
	return stranded
}

// table lists the actors that do not live their first life where the plan has placed them.
func (d *directory) table(version uint64) *messages.Table {
	d.mu.RLock()
	defer d.mu.RUnlock()
	t := &messages.Table{Version: version}
	for _, a := range d.order {
		l := d.lives[a]
		if l.incarnation == 0 && l.node == d.home[a] {
			continue
		}
		x := &messages.Incarnation{Actor: string(a), Incarnation: uint32(l.incarnation), Node: int32(l.node)}
		if l.announced {
			x.Round = protoRound(l.round)
		}
		t.Lives = append(t.Lives, x)
	}
	return t
}

func planLife(x *messages.Incarnation) life {
	return life{node: int(x.Node), incarnation: int(x.Incarnation), round: planRound(x.Round), announced: x.Round != nil}
}

// learn takes in what a table says. Links to and from lives that are over end, and the actors of this node are told of
// new lives. Which actors this node has does not change: settle does that.
func (n *Node) learn(t *messages.Table) {
	changed := false
	var peers []machine.PeerIs
	for _, x := range t.GetLives() {
		a, l := plan.ActorID(x.Actor), planLife(x)
		news, announce := n.directory.learn(a, l)
		changed = changed || news
		if announce {
			peers = append(peers, l.peerIs(a))
		}
	}
	if changed && n.transport != nil {
		n.transport.reset()
	}
	for _, p := range peers {
		n.tell(p)
	}
}

// tell tells the actors of this node of a peer's life. One of its older lives is left alone: it is to be retired.
func (n *Node) tell(p machine.PeerIs) {
	for _, s := range n.locals() {
		if s.id != p.Peer || s.actor.Incarnation >= p.Incarnation {
			s.address.tell(p)
		}
	}
}
