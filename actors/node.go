package actors

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// Options are what a Node is made from.
type Options struct {
	// Job is the name that all messages of the run carry.
	Job string
	// Index is the number of this node; the coordinator is 0. Name is how people call it: "node 0"
	// if empty.
	Index int
	Name  string
	// Attempt is the number of the attempt at the run. Actors of different attempts do not hear each other.
	Attempt uint64
	// Placement says which node runs each actor of the plan.
	Placement []plan.Actor
	// Server connects the node with the others. It is nil for a run in one process.
	Server *Server
	// MaxMessage is the most bytes of a payload that is taken from another node. 4 GiB if 0.
	MaxMessage int64
	// Observer hears what happens on this node.
	Observer Observer
	// Spawn makes what an actor needs that comes to this node when the run has begun: from a node that was lost, or
	// anew after a failure. Exit takes back what it lived on when it has been retired; after leftBehind an
	// operation may still use it. One at a time is called. Nil Spawn: whoever made the node does all that itself.
	Spawn func(id plan.ActorID, incarnation int) (Actor, error)
	Exit  func(id plan.ActorID, leftBehind bool)
	// Faults does harm on purpose. Nil does none.
	Faults Faults
	// Clock is that of the server if it is nil and there is one.
	Clock *Clock
	// Log gets lines for people; nil throws them away. Calls come from many goroutines.
	Log func(line string)
}

// Observer hears what happens on a node. Any function may be nil. They are called from the
// goroutines of the actors and must not block.
type Observer struct {
	// Stop is called when the trainer ends the run: nil for a clean end. It is also called when the
	// trainer itself fails.
	Stop func(err error)
	// Failed is called when an actor of this node fails, or the node learns of it. If it is nil, the
	// trainer is told instead, and stops the run.
	Failed func(machine.Failed)
	// Refused is called for messages that were refused by a machine.
	Refused func(machine.Refused)
	// Committed is called when an actor has committed all rounds before r.
	Committed func(actor plan.ActorID, r plan.Round)
}

// Actor is what a Node needs to bring an actor to life.
type Actor struct {
	Machine  machine.Machine
	Executor machine.Executor
	// Device and Account are where messages that come from other nodes are put.
	Device  device.Device
	Account *device.Account
	// Stream is where operations run. Whoever opened it closes it, after Node.Close.
	Stream      device.Stream
	Incarnation int
}

// ErrUnknownActor is in the chain of the errors about actors that are not in the placement, or not
// (or no longer) alive on their node.
var ErrUnknownActor = errors.New("no such actor")

// Node is one process of a run: its actors, and the way to those of other nodes. It is safe for
// concurrent use.
type Node struct {
	options   Options
	system    *system
	directory *directory
	transport *transport // nil in a run of one process

	mu     sync.RWMutex
	shells map[plan.ActorID]*shell
	// retired are actors of this node whose next life has not begun; unborn are the lives that Spawn could not make.
	retired map[plan.ActorID]bool
	unborn  map[plan.ActorID]int
	closed  bool
	// announced is told of the new lives that the trainer announces. Nil if nobody else needs to know.
	announced func(machine.PeerIs)

	settling sync.Mutex // held while actors are retired and brought to life as the directory says
	failures *failures
}

// NewNode starts a node without actors.
func NewNode(o Options) (*Node, error) {
	if o.Job == "" {
		return nil, errors.New("actors: a node needs the name of the job")
	}
	if o.Name == "" {
		o.Name = nodeName(o.Index)
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 4 << 30
	}
	if o.Server != nil {
		o.Server.options.Valve.is(o.Index)
		if o.Clock == nil {
			o.Clock = o.Server.options.Clock
		}
	}
	n := &Node{
		options:   o,
		directory: newDirectory(),
		shells:    map[plan.ActorID]*shell{},
		retired:   map[plan.ActorID]bool{},
		unborn:    map[plan.ActorID]int{},
		failures:  newFailures(),
	}
	for _, a := range o.Placement {
		if at, fresh := n.directory.place(a.ID, a.Node); !fresh {
			return nil, fmt.Errorf("actors: %s is placed on node %d and on node %d", a.ID, at, a.Node)
		}
		if a.Node != o.Index && o.Server == nil {
			return nil, fmt.Errorf("actors: %s is placed on node %d, but node %d has no server to reach others", a.ID, a.Node, o.Index)
		}
	}
	n.system = newSystem()
	if o.Server != nil {
		t, err := newTransport(n, o.Server)
		if err != nil {
			n.system.close()
			return nil, err
		}
		n.transport = t
	}
	return n, nil
}

func nodeName(index int) string { return fmt.Sprintf("node %d", index) }

// Index is the number of the node.
func (n *Node) Index() int { return n.options.Index }

// Name is how people call the node.
func (n *Node) Name() string { return n.options.Name }

// Spawn brings an actor to life. It must be placed on this node. A life beyond the first is told of the new lives
// of all others that have been announced.
func (n *Node) Spawn(a Actor) error {
	id := a.Machine.ID()
	l, ok := n.directory.get(id)
	at := l.node
	switch {
	case !ok:
		return fmt.Errorf("actors: %s is not in the placement: %w", id, ErrUnknownActor)
	case at != n.options.Index:
		return fmt.Errorf("actors: %s is placed on node %d, and this is node %d", id, at, n.options.Index)
	case a.Executor == nil || a.Device == nil || a.Account == nil || a.Stream == nil:
		return fmt.Errorf("actors: %s needs an executor, a device, an account and a stream", id)
	case a.Incarnation < l.incarnation:
		return fmt.Errorf("actors: %s cannot live its incarnation %d; it has come to %d", id, a.Incarnation, l.incarnation)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fmt.Errorf("actors: %s comes too late: the node is closed", id)
	}
	if n.shells[id] != nil {
		return fmt.Errorf("actors: %s is alive on this node already", id)
	}
	s, err := newShell(n, a)
	if err != nil {
		return err
	}
	if n.transport != nil {
		if err := n.transport.listen(s); err != nil {
			return errors.Join(err, s.address.stop(context.Background()))
		}
	}
	n.shells[id] = s
	delete(n.retired, id)
	n.directory.learn(id, life{node: at, incarnation: a.Incarnation})
	for id, l := range n.directory.all() {
		if l.announced {
			s.address.tell(l.peerIs(id))
		}
	}
	return nil
}

// Send gives an event to the machine of an actor. Events for actors of this node are all legal; to
// other nodes go Arrived, and Failed to the trainer. The reference of an Arrived payload goes to the
// machine, or is released when Send returns an error.
func (n *Node) Send(to plan.ActorID, e machine.Event) error {
	here, err := n.sendHere(to, e)
	if here {
		return nil
	}
	if err == nil {
		err = n.sendAway(to, e)
	}
	if a, ok := e.(machine.Arrived); ok && a.Message.Payload != nil {
		a.Message.Payload.Release() // the transport has taken its own
	}
	return err
}

// sendHere gives an event to an actor that is alive on this node, if its life is the one that counts, and reports
// whether it did. Whether somebody lives here is decided in one piece: an event comes before a retirement or a
// birth, or behind it, and is never held to be for nobody because it came in between.
func (n *Node) sendHere(to plan.ActorID, e machine.Event) (bool, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	s := n.shells[to]
	if s != nil && !n.over(s) {
		s.address.tell(e)
		return true, nil
	}
	if l, ok := n.directory.get(to); ok && l.node == n.options.Index && s == nil && !n.retired[to] && l.incarnation == 0 {
		return false, fmt.Errorf("actors: %s is not alive on %s: %w", to, n.options.Name, ErrUnknownActor)
	}
	return false, nil
}

// over reports whether another life of an actor counts than the one on this node.
func (n *Node) over(s *shell) bool {
	l, _ := n.directory.get(s.id)
	return l.node != n.options.Index || l.incarnation > s.actor.Incarnation
}

// sendAway sends an event to an actor that does not live on this node. What is for a life that has not begun
// vanishes: its sender keeps it, and sends it again when it is told of that life.
func (n *Node) sendAway(to plan.ActorID, e machine.Event) error {
	l, ok := n.directory.get(to)
	at := l.node
	switch {
	case !ok:
		return fmt.Errorf("actors: %s is not in the placement: %w", to, ErrUnknownActor)
	case at == nowhere, at == n.options.Index:
		return nil
	}
	switch e := e.(type) {
	case machine.Arrived:
		return n.transport.send(e.Message)
	case machine.Failed:
		if to == plan.Trainer {
			n.failures.add(e)
			return nil
		}
	}
	return fmt.Errorf("actors: %s is on node %d: an event %T does not travel there", to, at, e)
}

// post sends a message of a local actor on its way. The caller keeps its reference.
func (n *Node) post(m machine.Message) error {
	if m.Payload != nil {
		m.Payload.Retain()
	}
	return n.Send(m.Name.To, machine.Arrived{Message: m})
}

// failed tells the trainer that an actor of this node, or the node, cannot go on.
func (n *Node) failed(f machine.Failed) {
	if n.local(plan.Trainer) == nil { // else the run says so itself
		n.log("failed: %s", failureText(f))
	}
	if n.options.Observer.Failed != nil {
		n.options.Observer.Failed(f)
		return
	}
	if f.Actor == plan.Trainer {
		n.stopped(errors.New(failureText(f)))
		return
	}
	if err := n.Send(plan.Trainer, f); err != nil {
		n.stopped(errors.New(failureText(f)))
	}
}

// stopped ends the run, as far as this node can say.
func (n *Node) stopped(err error) {
	if n.options.Observer.Stop != nil {
		n.options.Observer.Stop(err)
	}
}

// failureText is one line: who, at what, in which round, why.
func failureText(f machine.Failed) string {
	who := string(f.Actor)
	switch {
	case who == "":
		return f.Node + ": " + f.Cause
	case f.Node != "":
		who += " (" + f.Node + ")"
	}
	if f.Op != "" {
		who += " at " + f.Op
	}
	return fmt.Sprintf("%s, %s: %s", who, f.Round, f.Cause)
}

func (n *Node) local(id plan.ActorID) *shell {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.shells[id]
}

// locals are the shells of this node, by ID.
func (n *Node) locals() []*shell {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := make([]*shell, 0, len(n.shells))
	for _, s := range n.shells {
		all = append(all, s)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].id < all[j].id })
	return all
}

// Stats are those of the actors of this node, ordered by ID. What they wait for is as of the last
// call: each call asks them again.
func (n *Node) Stats() []Stats {
	shells := n.locals()
	all := make([]Stats, len(shells))
	for i, s := range shells {
		all[i] = s.stats()
		if n.transport != nil {
			all[i].Unacknowledged, all[i].Resent = n.transport.linksOf(s.id)
		}
		s.ledger.ask(n.Now())
		s.address.tell(look{})
	}
	return all
}

// Troubles counts the frames that were refused and whatever else went wrong between this node and
// others, by kind. None of it loses a message.
func (n *Node) Troubles() map[string]uint64 {
	if n.transport == nil {
		return nil
	}
	return n.transport.troubles()
}

// Close ends the actors: what is in their mailboxes is given back, and operations that run are waited
// for. The error names who did not end before ctx did. Nothing may be sent to the node afterwards.
func (n *Node) Close(ctx context.Context) error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	n.mu.Unlock()
	if n.transport != nil {
		n.transport.close()
	}
	shells := n.locals()
	for _, s := range shells {
		close(s.retired)
	}
	errs := n.quiesce(ctx, shells)
	if errs == nil {
		for _, s := range shells {
			s.address.tell(end{})
		}
	} else {
		// Those who can still end get a moment, so that the error names only those who cannot.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
	}
	for _, s := range shells {
		errs = append(errs, s.address.stop(ctx))
	}
	n.system.close()
	return errors.Join(errs...)
}

// quiesce waits until no machine is called any more, and then until no operation runs.
func (n *Node) quiesce(ctx context.Context, shells []*shell) []error {
	var quits []quit
	for _, s := range shells {
		q := quit{make(chan struct{})}
		s.address.tell(q)
		quits = append(quits, q)
	}
	for i, q := range quits {
		select {
		case <-q.heard:
		case <-ctx.Done():
			return []error{fmt.Errorf("actors: %s does not answer: %w", shells[i].id, context.Cause(ctx))}
		}
	}
	running := false
	for _, s := range shells {
		select {
		case <-s.work.idle():
		case <-ctx.Done():
			running = true
		}
	}
	if !running {
		return nil
	}
	errs := []error{context.Cause(ctx)}
	for _, s := range shells {
		if w := s.stats().Wait; w.Running {
			errs = append(errs, fmt.Errorf("actors: %s has not ended: %s", s.id, w))
		}
	}
	return errs
}

// Now is the time by which the node decides.
func (n *Node) Now() time.Time { return n.options.Clock.Now() }

func (n *Node) log(format string, args ...any) { n.options.Log(fmt.Sprintf(format, args...)) }
