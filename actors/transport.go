package actors

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// transport carries messages between nodes: frames on the subject of the actor that they are for.
//
// Whoever sends queues by reference and goes on; one goroutine, the writer, does all publishing. It
// takes turns between the links, a chunk at a time, and sends acknowledgements first. What comes in
// is handled on the goroutine of the subscription: the data of a chunk is copied once, to its place
// in memory of the actor's device.
type transport struct {
	node   *Node
	data   *nats.Conn
	prefix string

	wake chan struct{} // of capacity 1
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	closed bool
	outs   map[edge]*outlet
	ins    map[edge]*inlet
	ears   map[plan.ActorID]*listener
	ready  []*outlet             // that may have something to send
	due    []*inlet              // that may have something to acknowledge
	counts map[string]uint64     // refused frames and other trouble, by kind
	bent   map[machine.Name]bool // messages of which a fault bends the next chunk
	valve  *Valve
}

// edge is the way from one actor to another.
type edge struct{ from, to plan.ActorID }

// outlet is the sending end of a link on this node. transport.mu guards it.
type outlet struct {
	edge   edge
	sender *sender[machine.Message]
	queued bool // it is in transport.ready
	over   bool // it has been taken out of the transport, and has nothing to send
}

// inlet is the receiving end. transport.mu guards receiver and queued; the listener's mutex guards parts.
type inlet struct {
	edge     edge
	shell    *shell
	receiver receiver
	queued   bool // it is in transport.due
	parts    assembly
}

// tickEvery is how often links look at the clock. It is well under askFirst.
const tickEvery = 10 * time.Millisecond

func newTransport(n *Node, s *Server) (*transport, error) {
	t := &transport{
		node:   n,
		prefix: fmt.Sprintf("troupe.%s.%d.actor.", token(n.options.Job), n.options.Attempt),
		wake:   make(chan struct{}, 1),
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
		outs:   map[edge]*outlet{},
		ins:    map[edge]*inlet{},
		ears:   map[plan.ActorID]*listener{},
		counts: map[string]uint64{},
		bent:   map[machine.Name]bool{},
		valve:  s.options.Valve,
	}
	c, err := s.connect(dataAccount, func(err error) { t.trouble("connection", err) })
	if err != nil {
		return nil, err
	}
	t.data = c
	go t.write()
	return t, nil
}

// token makes a part of a NATS subject of a name.
func token(name string) string {
	b := []byte(name)
	for i, c := range b {
		if c <= ' ' || c == '.' || c == '*' || c == '>' || c >= 127 {
			b[i] = '_'
		}
	}
	return string(b)
}

// subject is where one life of an actor listens, in one attempt at the run. What is for it does not go to an older one,
// which may be on a node that does not answer.
func (t *transport) subject(a plan.ActorID, incarnation int) string {
	return fmt.Sprintf("%s%s.%d", t.prefix, a, incarnation)
}

// send queues a message of a local actor. It takes a reference to the payload of its own.
func (t *transport) send(m machine.Message) error {
	view, err := bytesOf(m.Payload)
	if err != nil {
		return fmt.Errorf("actors: %s: %w", m.Name, err)
	}
	if m.Payload != nil {
		m.Payload.Retain()
	}
	e := edge{m.Name.From, m.Name.To}
	t.mu.Lock()
	to, _ := t.node.directory.get(e.to)
	epoch := epochOf(m.Name.Incarnation, to.incarnation)
	o := t.outs[e]
	var old *outlet
	if o == nil || o.sender.epoch < epoch {
		if old = o; old != nil {
			old.over = true
		}
		o = &outlet{edge: e, sender: newSender[machine.Message](epoch)}
		t.outs[e] = o
	}
	closed := t.closed || o.sender.epoch > epoch // it is of a life that is over
	if !closed {
		o.sender.push(m, int64(len(view)))
		t.schedule(o)
	}
	t.mu.Unlock()
	if old != nil {
		old.release()
	}
	if closed {
		release(m)
	}
	return nil
}

// shut reports whether the valve is shut between this node and that of an actor.
func (t *transport) shut(a plan.ActorID) bool {
	if t.valve == nil || !t.valve.closed.Load() {
		return false
	}
	l, _ := t.node.directory.get(a)
	return t.valve.shut(l.node)
}

// bend has a bit of the next chunk of a message be wrong on the wire.
func (t *transport) bend(n machine.Name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bent[n] = true
}

// bytesOf returns the bytes of a payload.
func bytesOf(p machine.Payload) ([]byte, error) {
	switch p := p.(type) {
	case nil:
		return nil, nil
	case machine.Blob:
		return p, nil
	case machine.Tensor:
		b := p.HostBytes()
		if b == nil && p.Len > 0 {
			return nil, errors.New("its payload is in memory that the processor cannot address")
		}
		return b, nil
	}
	return nil, fmt.Errorf("its payload is a %T, which does not travel", p)
}

func release(m machine.Message) {
	if m.Payload != nil {
		m.Payload.Release()
	}
}

// release gives back what the outlet holds. It has been taken out of the transport.
func (o *outlet) release() {
	for _, m := range o.sender.held() {
		release(m)
	}
}

// schedule puts an outlet in the writer's way. t.mu is held.
func (t *transport) schedule(o *outlet) {
	if !o.queued {
		o.queued = true
		t.ready = append(t.ready, o)
	}
	t.kick()
}

func (t *transport) kick() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// write is the writer: the one goroutine that publishes.
func (t *transport) write() {
	defer close(t.done)
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	var buffer []byte
	for {
		select {
		case <-t.stop:
			return
		case <-ticker.C:
			t.tick()
		case <-t.wake:
		}
		for t.step(&buffer) {
		}
	}
}

// tick lets time pass for all links.
func (t *transport) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.node.Now()
	for _, o := range t.outs {
		if !o.sender.idle() {
			o.sender.tick(now)
			t.schedule(o)
		}
	}
}

// step publishes one frame, and reports whether there may be more.
func (t *transport) step(buffer *[]byte) bool {
	t.mu.Lock()
	if len(t.due) > 0 {
		in := t.due[0]
		t.due = t.due[1:]
		in.queued = false
		g, ok := in.receiver.grant()
		t.mu.Unlock()
		if ok && !t.shut(in.edge.from) {
			t.publish(buffer, t.subject(in.edge.from, senderOf(g.epoch)), acknowledgement(in.edge, g), nil, false)
		}
		return true
	}
	if len(t.ready) == 0 {
		t.mu.Unlock()
		return false
	}
	o := t.ready[0]
	t.ready = t.ready[1:]
	o.queued = false
	if o.over {
		t.mu.Unlock()
		return true
	}
	c, ok := o.sender.take(t.node.Now())
	if !ok {
		t.mu.Unlock()
		return true
	}
	t.schedule(o)
	p := c.message.Payload
	if p != nil {
		p.Retain() // an acknowledgement may release the link's own at any moment
	}
	epoch := o.sender.epoch
	bend := t.bent[c.message.Name]
	if bend {
		delete(t.bent, c.message.Name)
	}
	t.mu.Unlock()
	if t.shut(o.edge.to) {
		if p != nil {
			p.Release()
		}
		return true
	}
	if c.probe {
		t.publish(buffer, t.subject(o.edge.to, receiverOf(epoch)), probe(o.edge, epoch), nil, false)
		return true
	}
	view, err := bytesOf(p)
	if err == nil {
		t.publish(buffer, t.subject(o.edge.to, receiverOf(epoch)), chunkHeader(c, epoch), view[c.offset:c.offset+c.bytes], bend)
	}
	if p != nil {
		p.Release()
	}
	return true
}

// publish sends a frame, or with bend one of which a bit is wrong. What does not leave is sent again by its link.
func (t *transport) publish(buffer *[]byte, subject string, h *messages.Header, data []byte, bend bool) {
	b, err := messages.AppendFrame((*buffer)[:0], h, data)
	*buffer = b
	if err == nil && bend {
		b[len(b)-1] ^= 1
	}
	if err == nil {
		err = t.data.Publish(subject, b)
	}
	if err != nil {
		t.trouble("publish", err)
	}
}

// trouble counts what went wrong, and tells people the first time.
func (t *transport) trouble(kind string, err error) {
	t.mu.Lock()
	t.counts[kind]++
	told := t.counts[kind] > 1 || t.closed
	t.mu.Unlock()
	if !told {
		t.node.log("%s: %v (more of this kind is counted, not logged)", kind, err)
	}
}

// troubles are the counts of refused frames and of other trouble, by kind.
func (t *transport) troubles() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := make(map[string]uint64, len(t.counts))
	for k, n := range t.counts {
		m[k] = n
	}
	return m
}

// linksOf sums over the links of an actor: the bytes that are not acknowledged, and the chunks that
// were sent more than once.
func (t *transport) linksOf(from plan.ActorID) (unacknowledged int64, again uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e, o := range t.outs {
		if e.from == from {
			unacknowledged += o.sender.bytes()
			again += o.sender.again
		}
	}
	return unacknowledged, again
}

// close ends the transport. What has not been acknowledged is given up.
func (t *transport) close() {
	t.mu.Lock()
	t.closed = true
	ears := t.ears
	t.mu.Unlock()
	for _, l := range ears {
		// The connection is closed next; an error here says no more than that it was closed already.
		_ = l.sub.Unsubscribe()
	}
	close(t.stop)
	<-t.done
	t.data.Close()
	t.mu.Lock()
	outs := t.outs
	t.outs = map[edge]*outlet{}
	t.mu.Unlock()
	for _, o := range outs {
		o.release()
	}
}

func acknowledgement(e edge, g grant) *messages.Header {
	return &messages.Header{Body: &messages.Header_Acknowledgement{Acknowledgement: &messages.Acknowledgement{
		Edge: protoEdge(e), Epoch: g.epoch, Next: g.next, Limit: g.limit, Gap: g.gap,
	}}}
}

func probe(e edge, epoch uint64) *messages.Header {
	return &messages.Header{Body: &messages.Header_Probe{Probe: &messages.Probe{Edge: protoEdge(e), Epoch: epoch}}}
}

func protoEdge(e edge) *messages.Edge { return &messages.Edge{From: string(e.from), To: string(e.to)} }

func chunkHeader(c chunk[machine.Message], epoch uint64) *messages.Header {
	h := &messages.Chunk{
		Name:   protoName(c.message.Name),
		Offset: uint64(c.offset), Sequence: c.sequence, Epoch: epoch, Sum: c.message.Sum,
	}
	switch p := c.message.Payload.(type) {
	case machine.Blob:
		h.Payload, h.Total = messages.Payload_PAYLOAD_BLOB, uint64(p.Bytes())
	case machine.Tensor:
		h.Payload, h.Total = messages.Payload_PAYLOAD_TENSOR, uint64(p.Bytes())
		h.Dtype = uint32(p.Type)
	}
	return &messages.Header{Body: &messages.Header_Chunk{Chunk: h}}
}

func dtype(x uint32) (device.DType, bool) {
	switch t := device.DType(x); t {
	case device.F32, device.F64, device.I32, device.BF16:
		return t, x == uint32(t)
	}
	return 0, false
}
