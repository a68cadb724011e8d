package actors

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// assembly is a message that has come in part. Its parts come in order and without holes: that is
// what the receiver sees to.
type assembly struct {
	epoch   uint64
	open    bool
	name    machine.Name
	payload machine.Payload // nil until done for a blob, and after failed
	blob    []byte
	into    []byte // the bytes of a tensor
	filled  uint64
	total   uint64
	sum     uint32
	// failed says that there was no memory for it: the rest of it is thrown away.
	failed bool
}

// blobStart is the most memory that is taken for a blob before its bytes come.
const blobStart = 1 << 20

// receive takes one NATS message on the subject of a local actor.
func (t *transport) receive(s *shell, m *nats.Msg) {
	f, err := messages.DecodeFrame(m.Data)
	if err != nil {
		t.refuse(s, err)
		return
	}
	if t.valve != nil && t.valve.closed.Load() && t.valve.shut(t.sender(f.Header)) {
		return
	}
	switch body := f.Header.Body.(type) {
	case *messages.Header_Chunk:
		err = t.receiveChunk(s, body.Chunk, f.Data)
	case *messages.Header_Acknowledgement:
		err = t.acknowledged(s, body.Acknowledgement)
	case *messages.Header_Probe:
		err = t.probed(s, body.Probe)
	case *messages.Header_Ready:
		err = t.answer(s, body.Ready, m)
	}
	if err != nil {
		t.refuse(s, err)
	}
}

// sender is the node that a frame comes from, as far as this one knows.
func (t *transport) sender(h *messages.Header) int {
	from := ""
	switch body := h.Body.(type) {
	case *messages.Header_Chunk:
		from = body.Chunk.Name.From
	case *messages.Header_Acknowledgement:
		from = body.Acknowledgement.Edge.To
	case *messages.Header_Probe:
		from = body.Probe.Edge.From
	case *messages.Header_Ready:
		return int(body.Ready.Node)
	}
	l, _ := t.node.directory.get(plan.ActorID(from))
	return l.node
}

// refuse counts a frame that is not legal here, and logs the first of its kind. It disturbs nothing:
// if a frame was damaged on its way, the link sends it again.
func (t *transport) refuse(s *shell, err error) {
	kind := "refused frame"
	if f := (*messages.FrameError)(nil); errors.As(err, &f) {
		kind += ": " + f.Kind
	}
	t.trouble(kind, fmt.Errorf("for %s: %w", s.id, err))
}

func misplaced(format string, args ...any) error {
	return &messages.FrameError{Kind: "misplaced", Detail: fmt.Sprintf(format, args...)}
}

// inlet returns the receiving end of the link from an actor of another node to s; nil for a frame of a life that is
// over, or for another life than that of s.
func (t *transport) inlet(s *shell, from, to string, epoch uint64) (*inlet, error) {
	if plan.ActorID(to) != s.id {
		return nil, misplaced("it is for %q and came to %s", to, s.id)
	}
	e := edge{plan.ActorID(from), s.id}
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.node.directory.get(e.from)
	sender := senderOf(epoch)
	switch {
	case !ok || l.node == t.node.options.Index && sender == l.incarnation:
		return nil, misplaced("its sender %q is not an actor of another node", from)
	case sender < l.incarnation || l.node == nowhere && sender == l.incarnation || receiverOf(epoch) != s.actor.Incarnation:
		t.counts[fencedFrames]++
		return nil, nil
	}
	if in := t.ins[e]; in != nil && in.shell == s {
		return in, nil
	}
	in := &inlet{edge: e, shell: s}
	t.ins[e] = in
	return in, nil
}

func (t *transport) receiveChunk(s *shell, c *messages.Chunk, data []byte) error {
	if c.Name.Job != t.node.options.Job {
		return misplaced("it is of job %q, and this is job %q", c.Name.Job, t.node.options.Job)
	}
	if c.Epoch>>receiverBits != uint64(c.Name.Incarnation)+1 {
		return misplaced("epoch %#x of incarnation %d", c.Epoch, c.Name.Incarnation)
	}
	in, err := t.inlet(s, c.Name.From, c.Name.To, c.Epoch)
	if in == nil {
		return err
	}
	if most := t.node.options.MaxMessage; c.Total > uint64(most) {
		return misplaced("a message of %d bytes; the most is %d", c.Total, most)
	}
	t.mu.Lock()
	v := in.receiver.accept(c.Epoch, c.Sequence)
	if v == stale {
		t.counts[fencedFrames]++
	}
	t.mu.Unlock()
	if v == fresh {
		err = in.place(c, data)
	}
	t.mu.Lock()
	if v == fresh {
		in.receiver.placed(int64(len(data)))
	}
	t.owe(in)
	t.mu.Unlock()
	return err
}

// fencedFrames counts frames to or from lives that are over. They are no trouble: whoever lives has them sent again.
const fencedFrames = "frames of fenced lives"

// owe puts an inlet in the writer's way. t.mu is held.
func (t *transport) owe(in *inlet) {
	if !in.queued {
		in.queued = true
		t.due = append(t.due, in)
	}
	t.kick()
}

// place puts the data of the next chunk in its place, and delivers the message when it is whole.
func (in *inlet) place(c *messages.Chunk, data []byte) error {
	a := &in.parts
	if a.open && a.epoch != c.Epoch {
		a.discard() // its sender did not live to send the rest
	}
	if !a.open {
		if c.Offset != 0 {
			return misplaced("a message begins at byte %d", c.Offset)
		}
		if err := in.begin(c); err != nil {
			return err
		}
	}
	if c.Offset != a.filled || c.Total != a.total {
		return misplaced("bytes %d of %d come where bytes %d of %d are next", c.Offset, c.Total, a.filled, a.total)
	}
	a.filled += uint64(len(data))
	switch {
	case a.failed:
	case a.into != nil:
		copy(a.into[c.Offset:], data)
	default:
		a.blob = append(a.blob, data...)
	}
	if a.filled < a.total {
		return nil
	}
	if a.failed {
		*a = assembly{}
		return nil
	}
	if c.Payload == messages.Payload_PAYLOAD_BLOB {
		a.payload = machine.Blob(a.blob)
	}
	m := machine.Message{Name: a.name, Payload: a.payload, Sum: a.sum}
	*a = assembly{}
	in.shell.address.tell(machine.Arrived{Message: m})
	return nil
}

// begin makes room for a message.
func (in *inlet) begin(c *messages.Chunk) error {
	a := assembly{epoch: c.Epoch, open: true, name: planName(c.Name), total: c.Total, sum: c.Sum}
	switch c.Payload {
	case messages.Payload_PAYLOAD_BLOB:
		a.blob = make([]byte, 0, min(c.Total, blobStart))
	case messages.Payload_PAYLOAD_TENSOR:
		dt, ok := dtype(c.Dtype)
		if !ok || c.Total%uint64(dt.Size()) != 0 {
			return misplaced("a tensor of %d bytes of element type %d", c.Total, c.Dtype)
		}
		s := in.shell
		slice, err := s.actor.Device.Alloc(s.actor.Account, device.Messages, dt, int(c.Total)/dt.Size())
		if err == nil {
			a.into = slice.HostBytes()
			if a.into == nil && c.Total > 0 {
				slice.Release()
				err = errors.New("memory of the device cannot be addressed by the processor")
			}
		}
		if err != nil {
			a.failed = true
			s.address.tell(noRoom{name: a.name, err: err})
		} else {
			a.payload = machine.Tensor{Slice: slice}
		}
	}
	in.parts = a
	return nil
}

func (a *assembly) discard() {
	if a.payload != nil {
		a.payload.Release()
	}
	*a = assembly{}
}

// acknowledged takes an answer to what s sent.
func (t *transport) acknowledged(s *shell, a *messages.Acknowledgement) error {
	if plan.ActorID(a.Edge.From) != s.id {
		return misplaced("it acknowledges what %q sent and came to %s", a.Edge.From, s.id)
	}
	whole, err := t.settle(edge{s.id, plan.ActorID(a.Edge.To)}, grant{epoch: a.Epoch, next: a.Next, limit: a.Limit, gap: a.Gap})
	for _, m := range whole {
		release(m)
	}
	return err
}

func (t *transport) settle(e edge, g grant) ([]machine.Message, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.outs[e]
	if o == nil {
		if _, known := t.node.directory.get(e.to); !known {
			return nil, misplaced("it acknowledges what was never sent to %s", e.to)
		}
		t.counts[fencedFrames]++ // the link has ended
		return nil, nil
	}
	whole := o.sender.acknowledge(g, t.node.Now())
	t.schedule(o)
	return whole, nil
}

func (t *transport) probed(s *shell, p *messages.Probe) error {
	in, err := t.inlet(s, p.Edge.From, p.Edge.To, p.Epoch)
	if in == nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	in.receiver.probed(p.Epoch)
	t.owe(in)
	return nil
}

// answer says that an actor hears its subject.
func (t *transport) answer(s *shell, r *messages.Ready, m *nats.Msg) error {
	if r.Answer || plan.ActorID(r.Actor) != s.id || m.Reply == "" {
		return misplaced("a question for %q came to %s", r.Actor, s.id)
	}
	b, err := messages.AppendFrame(nil, readyHeader(t.node.options.Index, s.id, true), nil)
	if err != nil {
		return err
	}
	return m.Respond(b)
}

func readyHeader(node int, a plan.ActorID, answer bool) *messages.Header {
	return &messages.Header{Body: &messages.Header_Ready{Ready: &messages.Ready{
		Node: uint32(node), Actor: string(a), Answer: answer,
	}}}
}
