package actors

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// Coordination is what a Coordinator is made from.
type Coordination struct {
	// Nodes is how many there are, node 0 included. 1 if 0.
	Nodes int
	// Numbers is how many of them there would be if all had come. A node that asks for a number below it for which there is no
	// place is let in as another one. Nodes if less.
	Numbers int
	// Version is that of the program. Nodes of another are refused.
	Version string
	// Welcome is what nodes hear that join; its Nodes, its Attempt, and its Placement if it is nil, are filled in.
	Welcome Welcome
	// Heartbeat is the time between two heartbeats (200 ms if 0), and Suspect how many of them may be
	// missed (5 if 0) before a node is given up.
	Heartbeat time.Duration
	Suspect   int
	// Deadline is how long no actor may make progress while a round is open. 0: for ever.
	Deadline time.Duration
	// Join is how long Gather waits. 0: as long as its context.
	Join time.Duration
	// Progress gets the lines of the checklist at the start; nil throws them away.
	Progress func(line string)
	// Lost is told, once, of a node that is gone while the run goes on, with its actors: it is silent, has left, or
	// its process has ended. If it is nil, the trainer is told that the node has failed. Joined is told of one that
	// joins while the run goes on, without actors. Opened is told when an actor of another node that is not in its
	// first life has opened a round. They must not block.
	Lost   func(node int, name, cause string)
	Joined func(node int, name string)
	Opened func(a plan.ActorID, incarnation int, r plan.Round)
	// Referee says for all nodes whether faults strike. Nil where there are none.
	Referee Referee
}

// Coordinator watches over the nodes and actors of a run. It lives on node 0, where the trainer is.
// It tells the trainer, by Failed, of actors of other nodes that failed, of nodes that left or are
// silent, and of a run in which nothing moves. It keeps the table of the actors that have come to other nodes or live
// another life than their first; the nodes read it in every beat.
type Coordinator struct {
	node    *Node
	options Coordination
	control *control // nil when there is one node
	stop    chan struct{}
	done    chan struct{}
	doubts  doubts

	mu      sync.Mutex
	phase   messages.Phase
	reason  string
	members []*memberState // by number; 0 is nil
	version uint64         // of the table
	fenced  []string       // sessions of nodes that were given up
	refused []string       // of nodes, what was told
	again   bool           // the run stops because another attempt begins
	ending  bool           // the run is to end after the step that is running
	missing []string       // actors that node 0 does not hear yet
	greeted bool
	silence *silence
	stall   stall
	began   time.Time
	tell    time.Duration // between two looks at what Gather has to tell
	// changed is closed and made anew whenever a member changes.
	changed chan struct{}
	// lost is why Gather cannot succeed: a node that is unfit, or one that may come back when another has its place.
	lost error
	over bool
}

// memberState is what the coordinator knows of another node.
type memberState struct {
	session, name string
	// address of its server; empty if that is not known.
	address  string
	doubt    doubt
	cores    int
	state    messages.State
	actors   []Stats
	missing  []string
	failures uint64 // how many of its failures have been told
	gone     bool
	// late says that it joined while the run went on; told, that Joined has been told; left, that it has said goodbye.
	late, told, left bool
	origin           int // what whoever started its process knows it by, or 0
}

// Coordinate begins to watch over the run, and lets nodes join. Shutdown ends it.
func (n *Node) Coordinate(o Coordination) (*Coordinator, error) {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = defaultHeartbeat
	}
	if o.Suspect == 0 {
		o.Suspect = defaultSuspect
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	switch {
	case n.options.Index != 0:
		return nil, fmt.Errorf("actors: node %d cannot coordinate; node 0 does", n.options.Index)
	case o.Nodes < 1 || o.Heartbeat < 0 || o.Suspect < 1:
		return nil, fmt.Errorf("actors: %d nodes, a heartbeat of %s and %d missed; all must be positive", o.Nodes, o.Heartbeat, o.Suspect)
	case o.Nodes > 1 && n.options.Server == nil:
		return nil, fmt.Errorf("actors: a run of %d nodes needs a server", o.Nodes)
	}
	o.Welcome.Nodes = o.Nodes
	o.Welcome.Attempt = n.options.Attempt
	if o.Welcome.Placement == nil {
		o.Welcome.Placement = n.options.Placement
	}
	c := &Coordinator{
		node: n, options: o,
		stop: make(chan struct{}), done: make(chan struct{}),
		doubts:  newDoubts(n.options.Server, o.Heartbeat*time.Duration(o.Suspect)),
		phase:   messages.Phase_PHASE_GATHERING,
		members: make([]*memberState, o.Nodes),
		silence: newSilence(o.Heartbeat, o.Suspect),
		stall:   stall{deadline: o.Deadline, interval: o.Heartbeat},
		began:   n.Now(),
		tell:    tellNews,
		changed: make(chan struct{}),
	}
	if o.Nodes > 1 {
		if err := c.open(); err != nil {
			return nil, err
		}
		n.mu.Lock()
		n.announced = c.announced
		n.mu.Unlock()
	}
	go c.run()
	return c, nil
}

func (c *Coordinator) open() error {
	x, err := openControl(c.node.options.Server)
	if err != nil {
		return err
	}
	c.control = x
	err = errors.Join(
		x.subscribe(helloSubject, c.hello),
		x.subscribe(reachedSubject, c.reached),
		x.subscribe(heartbeatSubject, func(m *messages.Control, _ *nats.Msg) {
			if h := m.GetHeartbeat(); h != nil && !c.valve().shut(int(h.Node)) {
				c.heartbeat(m.Session, h)
			}
		}),
	)
	if err != nil {
		x.close()
	}
	return err
}

// run is the coordinator's goroutine: it sends beats and finds who is silent and what stands still.
func (c *Coordinator) run() {
	defer close(c.done)
	ticker := time.NewTicker(c.options.Heartbeat)
	defer ticker.Stop()
	var news <-chan struct{}
	if c.options.Referee != nil {
		news = c.options.Referee.News()
	}
	for {
		c.beat()
		select {
		case <-c.stop:
			return
		case <-news:
		case <-ticker.C:
			c.look(c.node.Now())
		}
	}
}

func (c *Coordinator) beat() {
	if c.control == nil {
		return
	}
	c.mu.Lock()
	b := &messages.Beat{Phase: c.phase, Reason: c.reason, Table: c.node.directory.table(c.version), Fenced: c.fenced, Attempt: c.node.options.Attempt, Again: c.again, Ending: c.ending}
	c.mu.Unlock()
	if c.options.Referee != nil {
		b.Strikes = protoStrikes(c.options.Referee.Strikes())
	}
	c.control.publish(beatSubject, &messages.Control{Body: &messages.Control_Beat{Beat: b}})
}

// look finds who is silent and what stands still.
func (c *Coordinator) look(now time.Time) {
	local := c.node.Stats()
	c.mu.Lock()
	var failed []machine.Failed
	var tell []func()
	lost := c.silence.check(now)
	for _, i := range sorted(lost) {
		m := c.members[i]
		if !c.doubts.ask(&m.doubt, i, m.address, lost[i], func(err error) { c.answered(i, m, err) }) {
			tell = append(tell, c.silent(i, nil))
		}
	}
	if c.options.Deadline > 0 && c.phase == messages.Phase_PHASE_RUNNING {
		all := c.stats(local)
		if c.stall.look(all, now) {
			culprit, way := blame(all, c.stall.told-1)
			failed = append(failed, machine.Failed{
				Actor: culprit.Actor, Incarnation: culprit.Incarnation, Node: c.name(culprit.Node), Round: culprit.Wait.Round, Op: culprit.Wait.Op,
				Cause: fmt.Sprintf("nothing has moved for %s: %s", c.options.Deadline, way),
			})
		}
	}
	c.mu.Unlock()
	for _, f := range failed {
		c.node.failed(f)
	}
	for _, f := range tell {
		f()
	}
}

// answered takes in whether the server of a silent node answers.
func (c *Coordinator) answered(i int, m *memberState, err error) {
	c.mu.Lock()
	tell := func() {}
	switch {
	case m.gone || !m.doubt.open(): // it was heard
	case err == nil:
		c.silence.hear(i, c.node.Now())
		c.node.log("%s is silent for %s, but its server answers: it is waited for", m.name, m.doubt.silent.Round(time.Millisecond))
	default:
		tell = c.silent(i, err)
	}
	c.mu.Unlock()
	tell()
}

// silent gives up a node that is silent; err is what became of the question whether it is there, if there was one. c.mu
// is held.
func (c *Coordinator) silent(i int, err error) func() {
	m := c.members[i]
	silent := m.doubt.silent.Round(time.Millisecond)
	if !gone(err) {
		// It may come back, and its actors with it. While the run gathers they would be taken for those that another node
		// in its place has: both are in their first life.
		c.give(fmt.Errorf("actors: %s is lost: %w for %s", m.name, ErrLost, silent))
	}
	return c.lose(i, fmt.Sprintf("%v for %s", ErrLost, silent), lastSeen(m.actors))
}

func lastSeen(actors []Stats) string {
	var parts []string
	for _, a := range actors {
		parts = append(parts, fmt.Sprintf("%s was %s", a.Actor, doing(a)))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, "; ")
}

// stats are those of all actors, given the local ones. c.mu is held.
func (c *Coordinator) stats(local []Stats) []Stats {
	all := local
	for _, m := range c.members {
		if m != nil && !m.gone {
			all = append(all, m.actors...)
		}
	}
	return all
}

// Stats are those of all actors of the run; of other nodes, as of their last heartbeat.
func (c *Coordinator) Stats() []Stats {
	local := c.node.Stats()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats(local)
}

// name is how people call a node. c.mu is held.
func (c *Coordinator) name(node int) string {
	if node == 0 {
		return c.node.options.Name
	}
	if node > 0 && node < len(c.members) && c.members[node] != nil {
		return c.members[node].name
	}
	return ""
}

// give notes why Gather cannot succeed, while it is under way. c.mu is held.
func (c *Coordinator) give(err error) {
	if c.lost == nil && c.phase == messages.Phase_PHASE_GATHERING {
		c.lost = err
	}
	c.wake()
}

// wake tells who waits that something has changed. c.mu is held.
func (c *Coordinator) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// heartbeat takes what a node says of itself.
func (c *Coordinator) heartbeat(session string, h *messages.Heartbeat) {
	for _, tell := range c.take(session, h, c.node.Now()) {
		tell()
	}
}

func (c *Coordinator) take(session string, h *messages.Heartbeat, now time.Time) (tell []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.Node == 0 || int64(h.Node) >= int64(len(c.members)) {
		return nil
	}
	i := int(h.Node)
	m := c.members[i]
	if m == nil || m.session != session || m.gone {
		return nil // it was given up, or never let in
	}
	c.silence.hear(i, now)
	m.doubt = doubt{}
	if h.State > m.state {
		m.state = h.State
		c.wake()
	}
	m.missing = h.Missing
	tell = c.actors(m, i, h.Actors)
	for j, f := range h.Failures {
		if n := h.Forgotten + uint64(j) + 1; n > m.failures {
			m.failures = n
			tell = append(tell, func() { c.node.failed(planFailure(f)) })
		}
	}
	if m.late && !m.told && m.state == messages.State_STATE_READY {
		m.told = true
		tell = append(tell, func() { c.options.Joined(i, m.name) })
	}
	if h.State == messages.State_STATE_LEFT {
		cause := h.Leaving
		if cause == "" {
			cause = "it left"
		}
		m.left = true
		if h.Unfit {
			c.give(fmt.Errorf("actors: %s has left: %s", m.name, cause))
		}
		tell = append(tell, c.lose(i, cause, ""))
		c.wake()
	}
	return tell
}

// actors takes what a node says of its actors. c.mu is held.
func (c *Coordinator) actors(m *memberState, node int, list []*messages.ActorStatus) (tell []func()) {
	before := make(map[plan.ActorID]Stats, len(m.actors))
	for _, a := range m.actors {
		before[a.Actor] = a
	}
	m.actors = make([]Stats, 0, len(list))
	for _, x := range list {
		a := planStats(node, x)
		m.actors = append(m.actors, a)
		b, known := before[a.Actor]
		if !known || b.Incarnation != a.Incarnation {
			c.wake() // somebody may wait for it
		}
		if c.options.Opened != nil && a.Incarnation > 0 && a.Opened != (plan.Round{}) && (b.Incarnation != a.Incarnation || b.Opened != a.Opened) {
			tell = append(tell, func() { c.options.Opened(a.Actor, a.Incarnation, a.Opened) })
		}
	}
	return tell
}
