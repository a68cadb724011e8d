package actors

import (
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/messages"
)

// hello lets a node in, or says why not. It says nothing when another attempt begins: that is who answers then.
func (c *Coordinator) hello(x *messages.Control, m *nats.Msg) {
	h := x.GetHello()
	if h == nil || m.Reply == "" || h.Node > 0 && c.valve().shut(int(h.Node)) {
		return
	}
	c.supersede(x.Session, h)
	w := c.welcome(x.Session, h, c.node.Now())
	if w == nil {
		return
	}
	err := c.control.send(&messages.Control{Body: &messages.Control_Welcome{Welcome: w}}, m.Respond)
	if err != nil {
		c.node.log("control: %v", err)
	}
}

// supersede takes in that a process which is part of the run says hello again: it has left, though its goodbye has not come. A
// process has one server, by whose address it is known.
func (c *Coordinator) supersede(session string, h *messages.Hello) {
	tell := func() {}
	c.mu.Lock()
	for i, m := range c.members {
		if m != nil && !m.gone && m.session != session && m.address != "" && m.address == h.Address {
			m.left = true
			tell = c.lose(i, "its process joins again", "")
		}
	}
	c.mu.Unlock()
	tell()
}

func (c *Coordinator) welcome(session string, h *messages.Hello, now time.Time) *messages.Welcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.again {
		return nil
	}
	if h.Version != c.options.Version {
		return c.refusal(h, fmt.Sprintf("its version is %q, the coordinator's is %q", h.Version, c.options.Version), messages.Room_ROOM_NEVER)
	}
	i, reason, room := c.seat(session, h)
	if reason != "" {
		return c.refusal(h, reason, room)
	}
	m := c.members[i]
	if m == nil || m.session != session {
		name := h.Name
		if name == "" {
			name = nodeName(i)
		}
		m = &memberState{
			session: session, name: name, address: h.Address, cores: int(h.Cores), state: messages.State_STATE_JOINED,
			late: c.phase == messages.Phase_PHASE_RUNNING, origin: int(h.Origin),
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
		Late: m.late, Table: c.node.directory.table(c.version), Attempt: w.Attempt,
		Struck: uint64(struck),
	}
}

// mostRefused bounds what is kept of refusals that were told.
const mostRefused = 100

// refusal tells people of a node that is not let in: once of each, however often it asks. One that only has to ask for
// another number is let in next. c.mu is held.
func (c *Coordinator) refusal(h *messages.Hello, reason string, room messages.Room) *messages.Welcome {
	if line := fmt.Sprintf("refused %s: %s", who(h), reason); room != messages.Room_ROOM_OTHER && !slices.Contains(c.refused, line) {
		c.refused = append(c.refused[max(0, len(c.refused)+1-mostRefused):], line)
		c.node.log("%s", line)
	}
	return &messages.Welcome{Refusal: reason, Room: room}
}

// who is how people may find a node that has no place.
func who(h *messages.Hello) string {
	name := h.Name
	switch {
	case name != "":
	case h.Origin > 0:
		name = nodeName(int(h.Origin))
	case h.Node > 0:
		name = nodeName(int(h.Node))
	default:
		name = "a node"
	}
	if h.Address != "" {
		name += " at " + h.Address
	}
	return name
}

// seat finds the number of a node that says hello, which may do so more than once. The number of a node that
// is gone is free. c.mu is held.
func (c *Coordinator) seat(session string, h *messages.Hello) (node int, refusal string, room messages.Room) {
	taken := func(i int) bool { return i < len(c.members) && c.members[i] != nil && !c.members[i].gone }
	for i, m := range c.members {
		if m != nil && m.session == session && !m.gone {
			return i, "", 0
		}
	}
	gathering := c.phase == messages.Phase_PHASE_GATHERING
	most := len(c.members) - 1
	switch {
	case c.phase == messages.Phase_PHASE_STOPPING:
		return 0, "the run ends", messages.Room_ROOM_NEVER
	case !gathering && c.options.Joined == nil:
		return 0, "the run has begun without it", messages.Room_ROOM_NEVER
	case h.Node > int32(most) && int(h.Node) < c.options.Numbers:
		return 0, fmt.Sprintf("there are %d nodes now", most), messages.Room_ROOM_OTHER
	case h.Node > int32(most) || h.Node == 0 || h.Node < -1:
		return 0, fmt.Sprintf("it asks to be node %d; legal are the numbers that nodes have had so far, 1 to %d, and none, for the next that is free", h.Node, most), messages.Room_ROOM_NEVER
	case h.Node > 0:
		if taken(int(h.Node)) {
			return 0, fmt.Sprintf("node %d has joined already (%s)", h.Node, c.members[h.Node].name), messages.Room_ROOM_OTHER
		}
		return int(h.Node), "", 0
	}
	for i := 1; i <= most; i++ {
		if !taken(i) && !c.valve().shut(i) {
			return i, "", 0
		}
	}
	if gathering {
		return 0, fmt.Sprintf("all %d nodes have joined already; it may join when one has left, or the run has begun", most), messages.Room_ROOM_LATER
	}
	c.members = append(c.members, nil)
	return most + 1, "", 0
}
