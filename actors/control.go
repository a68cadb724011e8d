package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// control is the connection over which nodes, not actors, talk. NATS may lose any of it, so all of it
// is state that is said again and again, or a question that is asked until it is answered. What is heard is held to be
// true only if it is whole, of this job, and newer than all that the same session has said before on its subject.
type control struct {
	conn    *nats.Conn
	job     string
	prefix  string
	session string
	log     func(string)

	mu       sync.Mutex
	sequence uint64            // of the last message of this session; messages leave in its order
	refused  map[string]uint64 // messages, by subject and kind
}

// openControl connects to the node's own server, and begins a session.
func openControl(s *Server) (*control, error) {
	c := &control{
		job: s.options.Job, prefix: "troupe." + token(s.options.Job) + ".", session: newSession(),
		log: s.options.Log, refused: map[string]uint64{},
	}
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
	reachedSubject   = "reached"   // to the coordinator: a question
)

// send names m as the next message of this session and hands its bytes to out.
func (c *control) send(m *messages.Control, out func([]byte) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence++
	m.Job, m.Session, m.Sequence = c.job, c.session, c.sequence
	b, err := messages.EncodeControl(m)
	if err != nil {
		return err
	}
	return out(b)
}

func (c *control) publish(subject string, m *messages.Control) {
	err := c.send(m, func(b []byte) error { return c.conn.Publish(c.prefix+subject, b) })
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		c.log("control: " + err.Error())
	}
}

// subscribe hears a subject. What does not decode, is of another job or is not new is counted and thrown away.
func (c *control) subscribe(subject string, hear func(*messages.Control, *nats.Msg)) error {
	last := map[string]uint64{} // the newest sequence, by session: there is one for each time that a node has joined
	_, err := subscribe(c.conn, c.prefix+subject, func(m *nats.Msg) {
		x, err := c.decode(m.Data)
		if err == nil && x.Sequence <= last[x.Session] {
			err = &messages.FrameError{Kind: "old", Detail: fmt.Sprintf("sequence %d after %d", x.Sequence, last[x.Session])}
		}
		if err != nil {
			c.refuse(subject, err)
			return
		}
		last[x.Session] = x.Sequence
		hear(x, m)
	})
	return err
}

func (c *control) decode(b []byte) (*messages.Control, error) {
	x, err := messages.DecodeControl(b)
	if err == nil && x.Job != c.job {
		return nil, &messages.FrameError{Kind: "of another job", Detail: fmt.Sprintf("%q; this is %q", x.Job, c.job)}
	}
	return x, err
}

// refuse counts a message that is refused, and tells people of the first of its kind, the tenth, the hundredth and so on.
func (c *control) refuse(subject string, err error) {
	kind := "trouble"
	if f := (*messages.FrameError)(nil); errors.As(err, &f) {
		kind = f.Kind
	}
	c.mu.Lock()
	c.refused[subject+": "+kind]++
	n := c.refused[subject+": "+kind]
	c.mu.Unlock()
	for n%10 == 0 {
		n /= 10
	}
	if n == 1 {
		c.log(fmt.Sprintf("control: refused a message on %s: %v (of its kind the 10th, the 100th and so on are told)", subject, err))
	}
}

// ask asks until there is an answer or ctx ends.
func (c *control) ask(ctx context.Context, subject string, m *messages.Control) (*messages.Control, error) {
	for patience := firstAnswer; ; patience = min(2*patience, lastAnswer) {
		var question []byte
		if err := c.send(m, func(b []byte) error { question = b; return nil }); err != nil {
			return nil, err
		}
		once, cancel := context.WithTimeout(ctx, patience)
		answer, err := c.conn.RequestWithContext(once, c.prefix+subject, question)
		cancel()
		if err == nil {
			var x *messages.Control
			if x, err = c.decode(answer.Data); err == nil {
				return x, nil
			}
			c.refuse(subject, err)
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
