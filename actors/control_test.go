package actors

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-train/troupe/messages"
)

// TestControlBelievesOnlyWhatIsNew: who can speak on the connection of control cannot, by what was said before or to
// another, by bent bytes or under a name of its own, end a node's part in the run or the run.
func TestControlBelievesOnlyWhatIsNew(t *testing.T) {
	lines := &lines{}
	_, c, first := opening(t, Coordination{})
	c.control.log = lines.add
	s := startServer(t, ServerOptions{Join: first.Addr()})
	m, err := Join(within(patience), s, Hello{Node: 1, Name: "b", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Leave(nil)
	stranger, err := openControl(s)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.close()

	left := func(session string, sequence uint64) *messages.Control {
		return &messages.Control{
			Job: "test", Session: session, Sequence: sequence,
			Body: &messages.Control_Heartbeat{Heartbeat: &messages.Heartbeat{Node: 1, State: messages.State_STATE_LEFT}},
		}
	}
	stopping := &messages.Control{Body: &messages.Control_Beat{Beat: &messages.Beat{Phase: messages.Phase_PHASE_STOPPING, Reason: "a stranger says so"}}}
	otherJob := left(m.control.session, 1<<40)
	otherJob.Job = "other"
	raw := func(subject string, x *messages.Control, bend func([]byte)) {
		t.Helper()
		b, err := messages.EncodeControl(x)
		if err != nil {
			t.Fatal(err)
		}
		bend(b)
		if err := stranger.conn.Publish(stranger.prefix+subject, b); err != nil {
			t.Fatal(err)
		}
	}
	asIs := func([]byte) {}
	eventually(t, "a heartbeat has come", func() bool {
		m.control.mu.Lock()
		defer m.control.mu.Unlock()
		return m.control.sequence > 5
	})
	raw(heartbeatSubject, left(m.control.session, 2), asIs)                          // an old one
	raw(heartbeatSubject, otherJob, asIs)                                            // of another job
	raw(heartbeatSubject, left(m.control.session, 1<<40), func(b []byte) { b[8]++ }) // bent
	raw(heartbeatSubject, left(stranger.session, 1), asIs)                           // of another session
	for range 200 {
		raw(heartbeatSubject, left(m.control.session, 1<<40), func(b []byte) { b[len(b)-1]++ })
	}
	stranger.publish(beatSubject, proto.CloneOf(stopping))

	eventually(t, "all of it was refused", func() bool {
		c.control.mu.Lock()
		defer c.control.mu.Unlock()
		r := c.control.refused
		return r["heartbeat: old"] == 1 && r["heartbeat: of another job"] == 1 && r["heartbeat: checksum differs"] == 201
	})
	// Two heartbeats more have come by now or come yet, and nothing has ended.
	m.control.mu.Lock()
	now := m.control.sequence
	m.control.mu.Unlock()
	eventually(t, "the node goes on", func() bool {
		m.control.mu.Lock()
		defer m.control.mu.Unlock()
		return m.control.sequence > now+2
	})
	m.mu.Lock()
	over := m.over
	m.mu.Unlock()
	if over {
		t.Error("a stranger's beat has ended the run for the node")
	}
	c.mu.Lock()
	gone, lost := c.members[1].gone, c.lost
	c.mu.Unlock()
	if gone || lost != nil {
		t.Errorf("the coordinator has given the node up: %v", lost)
	}
	told := 0
	for _, line := range lines.get() {
		if strings.Contains(line, "checksum differs") {
			told++
		}
	}
	if told != 3 { // the first, the 10th and the 100th
		t.Errorf("201 refused messages of a kind are told in %d lines, want 3", told)
	}
}

// TestReplayedHello: the hello of a node that has gone gives nobody its place.
func TestReplayedHello(t *testing.T) {
	_, c, first := opening(t, Coordination{})
	s := startServer(t, ServerOptions{Join: first.Addr()})
	x, err := openControl(s)
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	hello := &messages.Control{Body: &messages.Control_Hello{Hello: &messages.Hello{Node: 1, Version: "v1"}}}
	if _, err := x.ask(within(patience), helloSubject, hello); err != nil {
		t.Fatal(err)
	}
	x.publish(heartbeatSubject, &messages.Control{Body: &messages.Control_Heartbeat{Heartbeat: &messages.Heartbeat{Node: 1, State: messages.State_STATE_LEFT}}})
	gone := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.members[1].gone
	}
	eventually(t, "the node has left", gone)
	b, err := messages.EncodeControl(hello) // as it was sent
	if err != nil {
		t.Fatal(err)
	}
	if err := x.conn.PublishRequest(x.prefix+helloSubject, "nobody", b); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it was refused", func() bool {
		c.control.mu.Lock()
		defer c.control.mu.Unlock()
		return c.control.refused["hello: old"] == 1
	})
	if !gone() {
		t.Fatal("an old hello has taken the place")
	}
}
