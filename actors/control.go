package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// control is the connection over which nodes, not actors, talk. NATS may lose any of it, so all of it
// is state that is said again and again, or a question that is asked until it is answered.
type control struct {
	conn   *nats.Conn
	prefix string
	log    func(string)
}

// openControl connects to the node's own server.
func openControl(s *Server) (*control, error) {
	c := &control{prefix: "troupe." + token(s.options.Job) + ".", log: s.options.Log}
	conn, err := s.connect(controlAccount, func(err error) { c.log("control: " + err.Error()) })
	if err != nil {
		return nil, err
	}
	c.conn = conn
	return c, nil
}

// Subjects of the control account.
const (
	helloSubject     = "hello"     // to the coordinator: a question
	heartbeatSubject = "heartbeat" // to the coordinator
	beatSubject      = "beat"      // from the coordinator to all
)

func (c *control) publish(subject string, m *messages.Control) {
	b, err := messages.EncodeControl(m)
	if err == nil {
		err = c.conn.Publish(c.prefix+subject, b)
	}
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		c.log("control: " + err.Error())
	}
}

// subscribe hears a subject. What does not decode is logged and thrown away.
func (c *control) subscribe(subject string, hear func(*messages.Control, *nats.Msg)) error {
	_, err := subscribe(c.conn, c.prefix+subject, func(m *nats.Msg) {
		x, err := messages.DecodeControl(m.Data)
		if err != nil {
			c.log(fmt.Sprintf("control: refused a message on %s: %v", subject, err))
			return
		}
		hear(x, m)
	})
	return err
}

// ask asks until there is an answer or ctx ends.
func (c *control) ask(ctx context.Context, subject string, m *messages.Control) (*messages.Control, error) {
	b, err := messages.EncodeControl(m)
	if err != nil {
		return nil, err
	}
	for patience := firstAnswer; ; patience = min(2*patience, lastAnswer) {
		once, cancel := context.WithTimeout(ctx, patience)
		answer, err := c.conn.RequestWithContext(once, c.prefix+subject, b)
		cancel()
		if err == nil {
			return messages.DecodeControl(answer.Data)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("nobody answers: %w", context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *control) close() { c.conn.Close() }

// heartbeat says what the actors of a node do.
func (n *Node) heartbeat(h *messages.Heartbeat) {
	for _, s := range n.Stats() {
		h.Actors = append(h.Actors, protoStats(s))
	}
	list, forgotten := n.failures.list()
	for _, f := range list {
		h.Failures = append(h.Failures, protoFailure(f))
	}
	h.Forgotten = forgotten
}

func protoStats(s Stats) *messages.ActorStatus {
	return &messages.ActorStatus{
		Actor: string(s.Actor), Incarnation: uint32(s.Incarnation), Wait: protoWait(s.Wait),
		Progress: s.Progress, Failure: s.Failure, Unacknowledged: s.Unacknowledged, Resent: s.Resent,
		BusyNs: int64(s.Busy), PeakBytes: s.Peak, HeldBytes: s.Held, Sent: s.Sent[:], Refused: s.Refused,
		Opened: protoRound(s.Opened),
	}
}

func planStats(node int, s *messages.ActorStatus) Stats {
	x := Stats{
		Actor: plan.ActorID(s.Actor), Node: node, Incarnation: int(s.Incarnation), Wait: planWait(s.Wait),
		Progress: s.Progress, Failure: s.Failure, Unacknowledged: s.Unacknowledged, Resent: s.Resent,
		Busy: time.Duration(s.BusyNs), Peak: s.PeakBytes, Held: s.HeldBytes, Refused: s.Refused,
		Opened: planRound(s.Opened),
	}
	copy(x.Sent[:], s.Sent)
	return x
}
