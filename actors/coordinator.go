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
)

// Coordination is what a Coordinator is made from.
type Coordination struct {
	// Nodes is how many there are, node 0 included. 1 if 0.
	Nodes int
	// Version is that of the program. Nodes of another are refused.
	Version string
	// Welcome is what nodes hear that join; its Nodes, and its Placement if it is nil, are filled in.
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
}

// Coordinator watches over the nodes and actors of a run. It lives on node 0, where the trainer is.
// It tells the trainer, by Failed, of actors of other nodes that failed, of nodes that left or are
// silent, and of a run in which nothing moves.
type Coordinator struct {
	node    *Node
	options Coordination
	control *control // nil when there is one node
	stop    chan struct{}
	done    chan struct{}

	mu      sync.Mutex
	phase   messages.Phase
	reason  string
	members []*memberState // by number; 0 is nil
	missing []string       // actors that node 0 does not hear yet
	greeted bool
	silence *silence
	stall   stall
	began   time.Time
	// changed is closed and made anew whenever a member changes.
	changed chan struct{}
	// lost is why Gather cannot succeed any more.
	lost error
	over bool
}

// memberState is what the coordinator knows of another node.
type memberState struct {
	session, name string
	cores         int
	state         messages.State
	actors        []Stats
	missing       []string
	failures      int // of its list, how many the trainer has been told
	gone          bool
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
	if o.Welcome.Placement == nil {
		o.Welcome.Placement = n.options.Placement
	}
	c := &Coordinator{
		node: n, options: o,
		stop: make(chan struct{}), done: make(chan struct{}),
		phase:   messages.Phase_PHASE_GATHERING,
		members: make([]*memberState, o.Nodes),
		silence: newSilence(o.Heartbeat, o.Suspect),
		stall:   stall{deadline: o.Deadline},
		began:   time.Now(),
		changed: make(chan struct{}),
	}
	if o.Nodes > 1 {
		if err := c.open(); err != nil {
			return nil, err
		}
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
		x.subscribe(heartbeatSubject, func(m *messages.Control, _ *nats.Msg) {
			if h := m.GetHeartbeat(); h != nil {
				c.heartbeat(h)
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
	for {
		c.beat()
		select {
		case <-c.stop:
			return
		case <-ticker.C:
			c.look(time.Now())
		}
	}
}

func (c *Coordinator) beat() {
	if c.control == nil {
		return
	}
	c.mu.Lock()
	b := &messages.Beat{Phase: c.phase, Reason: c.reason}
	c.mu.Unlock()
	c.control.publish(beatSubject, &messages.Control{Body: &messages.Control_Beat{Beat: b}})
}

// look finds who is silent and what stands still.
func (c *Coordinator) look(now time.Time) {
	local := c.node.Stats()
	c.mu.Lock()
	var failed []machine.Failed
	lost := c.silence.check(now)
	for _, i := range sorted(lost) {
		m := c.members[i]
		m.gone = true
		if c.phase != messages.Phase_PHASE_STOPPING {
			failed = append(failed, machine.Failed{
				Node: m.name, Cause: fmt.Sprintf("%v for %s%s", ErrLost, lost[i].Round(time.Millisecond), lastSeen(m.actors)),
			})
		}
		c.give(fmt.Errorf("actors: %s is lost: %w for %s", m.name, ErrLost, lost[i].Round(time.Millisecond)))
	}
	if c.options.Deadline > 0 && c.phase == messages.Phase_PHASE_RUNNING {
		all := c.stats(local)
		if c.stall.look(all, now) {
			culprit, way := blame(all)
			failed = append(failed, machine.Failed{
				Actor: culprit.Actor, Node: c.name(culprit.Node), Round: culprit.Wait.Round, Op: culprit.Wait.Op,
				Cause: fmt.Sprintf("nothing has moved for %s: %s", c.options.Deadline, way),
			})
		}
	}
	c.mu.Unlock()
	for _, f := range failed {
		c.node.failed(f)
	}
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
		if m != nil {
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

// give notes why Gather cannot succeed. c.mu is held.
func (c *Coordinator) give(err error) {
	if c.lost == nil {
		c.lost = err
	}
	c.wake()
}

// wake tells who waits that something has changed. c.mu is held.
func (c *Coordinator) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// hello lets a node in, or says why not.
func (c *Coordinator) hello(x *messages.Control, m *nats.Msg) {
	h := x.GetHello()
	if h == nil || m.Reply == "" {
		return
	}
	b, err := messages.EncodeControl(&messages.Control{Body: &messages.Control_Welcome{Welcome: c.welcome(h, time.Now())}})
	if err == nil {
		err = m.Respond(b)
	}
	if err != nil {
		c.node.log("control: %v", err)
	}
}

func (c *Coordinator) welcome(h *messages.Hello, now time.Time) *messages.Welcome {
	refuse := func(format string, args ...any) *messages.Welcome {
		w := &messages.Welcome{Refusal: fmt.Sprintf(format, args...)}
		c.node.log("refused a node (%q): %s", h.Name, w.Refusal)
		return w
	}
	if h.Version != c.options.Version {
		return refuse("its version is %q, the coordinator's is %q", h.Version, c.options.Version)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i, reason := c.seat(h)
	if reason != "" {
		return refuse("%s", reason)
	}
	if c.members[i] == nil {
		name := h.Name
		if name == "" {
			name = nodeName(i)
		}
		c.members[i] = &memberState{session: h.Session, name: name, cores: int(h.Cores), state: messages.State_STATE_JOINED}
		c.wake()
	}
	c.silence.hear(i, now)
	w := c.options.Welcome
	return &messages.Welcome{
		Node: uint32(i), Nodes: uint32(c.options.Nodes), Job: w.Job, Options: w.Options,
		Fingerprint: w.Fingerprint, Placement: protoPlacement(w.Placement),
		HeartbeatNs: int64(c.options.Heartbeat), Suspect: uint32(c.options.Suspect),
	}
}

// seat finds the number of a node that says hello, which may do so more than once. c.mu is held.
func (c *Coordinator) seat(h *messages.Hello) (int, string) {
	for i, m := range c.members {
		if m != nil && m.session == h.Session {
			return i, ""
		}
	}
	switch {
	case c.phase != messages.Phase_PHASE_GATHERING:
		return 0, "the run has begun without it"
	case h.Node >= int32(c.options.Nodes) || h.Node == 0 || h.Node < -1:
		return 0, fmt.Sprintf("it asks to be node %d; legal are 1 to %d", h.Node, c.options.Nodes-1)
	case h.Node > 0:
		if m := c.members[h.Node]; m != nil {
			return 0, fmt.Sprintf("node %d has joined already (%s)", h.Node, m.name)
		}
		return int(h.Node), ""
	}
	for i := 1; i < len(c.members); i++ {
		if c.members[i] == nil {
			return i, ""
		}
	}
	return 0, fmt.Sprintf("all %d nodes have joined already", c.options.Nodes)
}

// heartbeat takes what a node says of itself.
func (c *Coordinator) heartbeat(h *messages.Heartbeat) {
	for _, f := range c.take(h, time.Now()) {
		c.node.failed(f)
	}
}

func (c *Coordinator) take(h *messages.Heartbeat, now time.Time) []machine.Failed {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.Node == 0 || int64(h.Node) >= int64(len(c.members)) {
		return nil
	}
	m := c.members[h.Node]
	if m == nil || m.session != h.Session || m.gone {
		return nil // it was given up, or never let in
	}
	c.silence.hear(int(h.Node), now)
	if h.State > m.state {
		m.state = h.State
		c.wake()
	}
	m.missing = h.Missing
	if len(h.Actors) > 0 {
		m.actors = m.actors[:0]
		for _, a := range h.Actors {
			m.actors = append(m.actors, planStats(int(h.Node), a))
		}
	}
	var failed []machine.Failed
	for ; m.failures < len(h.Failures); m.failures++ {
		failed = append(failed, planFailure(h.Failures[m.failures]))
	}
	if h.State == messages.State_STATE_LEFT {
		m.gone = true
		c.silence.forget(int(h.Node))
		if c.phase != messages.Phase_PHASE_STOPPING {
			cause := h.Leaving
			if cause == "" {
				cause = "it left in the middle of the run"
			}
			failed = append(failed, machine.Failed{Node: m.name, Cause: cause})
			c.give(fmt.Errorf("actors: %s has left: %s", m.name, cause))
		}
		c.wake()
	}
	return failed
}
