package actors

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/messages"
)

// hello lets a node in, or says why not.
func (c *Coordinator) hello(x *messages.Control, m *nats.Msg) {
	h := x.GetHello()
	if h == nil || m.Reply == "" || h.Node > 0 && c.valve().shut(int(h.Node)) {
		return
	}
	w := c.welcome(x.Session, h, c.node.Now())
	err := c.control.send(&messages.Control{Body: &messages.Control_Welcome{Welcome: w}}, m.Respond)
	if err != nil {
		c.node.log("control: %v", err)
	}
}

func (c *Coordinator) welcome(session string, h *messages.Hello, now time.Time) *messages.Welcome {
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
	i, reason := c.seat(session, h)
	if reason != "" {
		return refuse("%s", reason)
	}
	m := c.members[i]
	if m == nil || m.session != session {
		name := h.Name
		if name == "" {
			name = nodeName(i)
		}
		m = &memberState{
			session: session, name: name, address: h.Address, cores: int(h.Cores), state: messages.State_STATE_JOINED,
			late: c.phase == messages.Phase_PHASE_RUNNING, asked: h.Node > 0,
		}
		c.members[i] = m
		c.wake()
	}
	c.silence.hear(i, now)
	m.doubt = doubt{}
	w := c.options.Welcome
	struck := 0
	if c.options.Referee != nil {
		struck = c.options.Referee.Strikes().Until()
	}
	return &messages.Welcome{
		Node: uint32(i), Nodes: uint32(c.options.Nodes), Job: w.Job, Options: w.Options,
		Fingerprint: w.Fingerprint, Placement: protoPlacement(w.Placement),
		HeartbeatNs: int64(c.options.Heartbeat), Suspect: uint32(c.options.Suspect),
		Late: m.late, Table: c.node.directory.table(c.version),
		Struck: uint64(struck),
	}
}

// seat finds the number of a node that says hello, which may do so more than once. The number of a node that
// is gone is free. c.mu is held.
func (c *Coordinator) seat(session string, h *messages.Hello) (int, string) {
	taken := func(i int) bool { return i < len(c.members) && c.members[i] != nil && !c.members[i].gone }
	for i, m := range c.members {
		if m != nil && m.session == session && !m.gone {
			return i, ""
		}
	}
	gathering := c.phase == messages.Phase_PHASE_GATHERING
	most := len(c.members) - 1
	switch {
	case c.phase == messages.Phase_PHASE_STOPPING:
		return 0, "the run ends"
	case !gathering && c.options.Joined == nil:
		return 0, "the run has begun without it"
	case h.Node > int32(most) || h.Node == 0 || h.Node < -1:
		return 0, fmt.Sprintf("it asks to be node %d; legal are 1 to %d", h.Node, most)
	case h.Node > 0:
		if taken(int(h.Node)) {
			return 0, fmt.Sprintf("node %d has joined already (%s)", h.Node, c.members[h.Node].name)
		}
		return int(h.Node), ""
	}
	for i := 1; i <= most; i++ {
		if !taken(i) && !c.valve().shut(i) {
			return i, ""
		}
	}
	if gathering {
		return 0, fmt.Sprintf("all %d nodes have joined already", c.options.Nodes)
	}
	c.members = append(c.members, nil)
	return most + 1, ""
}
