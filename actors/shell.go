package actors

import (
	"errors"
	"fmt"
	"hash/crc32"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// shell is the thin skin around a machine: it turns messages into events, and effects into sends
// and launches. receive never blocks, and nothing that panics inside it gets out: a machine that
// panics has failed, and the process goes on.
type shell struct {
	node    *Node
	actor   Actor
	id      plan.ActorID
	address *address
	ledger  ledger

	// The rest belongs to receive, but for broken.

	// dead says that the machine panicked or was killed, and closing that the node closes: it is not called again.
	dead, killed, closing bool
	// told says that the trainer knows of a failure; the first is the cause, the others follow from it.
	told bool
	// owed is harm for the next operation.
	owed Harm
	// launched counts operations.
	launched uint64
	// drops wait for operations to complete.
	drops drops
	// looked is when the Wait in the stats was taken down.
	looked time.Time
	// broken is set on the stream by the first operation that fails. Those behind it do not run:
	// what they read was never made.
	broken atomic.Bool
	// work counts operations on the stream. retired is closed when this life is to end.
	work    *gate
	retired chan struct{}
	// landed are flights that are not under way, and finisher the executor of those that are the shell's own.
	landed   []*flight
	finisher machine.Executor
}

// Messages that only shells get, besides the *flight that comes from the stream.
type (
	// noRoom says that a message came for which there is no memory.
	noRoom struct {
		name machine.Name
		err  error
	}
	// look asks for a fresh Wait in the stats.
	look struct{}
	// quit says that the node closes.
	quit struct{ heard chan struct{} }
	// end says that nothing runs any more.
	end struct{}
)

// lookEvery bounds how old the Wait of a busy actor gets, and what it costs to make.
const lookEvery = 50 * time.Millisecond

// errNotRun is why an operation behind one that failed did not run.
var errNotRun = errors.New("an operation before it failed")

// errKilled is why an actor ends that a fault has killed.
var errKilled = errors.New("it was killed")

func newShell(n *Node, a Actor) (*shell, error) {
	s := &shell{node: n, actor: a, id: a.Machine.ID(), work: newGate(), retired: make(chan struct{}), finisher: finisher{a.Executor}}
	s.ledger.stats = Stats{Actor: s.id, Node: n.options.Index, Incarnation: a.Incarnation, Wait: a.Machine.Waiting()}
	name := string(s.id)
	if a.Incarnation > 0 {
		name = fmt.Sprintf("%s#%d", s.id, a.Incarnation)
	}
	var err error
	s.address, err = n.system.spawn(name, s.receive)
	return s, err
}

func (s *shell) receive(message any) {
	defer func() {
		if v := recover(); v != nil {
			s.dead = true
			s.node.log("%s panicked: %v%s", s.id, v, stack(v, debug.Stack()))
			round, at := occasion(message)
			s.fail(machine.Fail{Round: round, Op: at, Cause: fmt.Errorf("panic: %v", v)})
		}
	}()
	switch m := message.(type) {
	case *flight:
		if !m.own {
			s.ledger.completed(m)
		}
		s.handle(s.event(m))
		m.clear()
		s.landed = append(s.landed, m)
	case machine.Event: // handed on as it came, in its box
		if a, ok := m.(machine.Arrived); ok {
			s.ledger.update(func(x *Stats) { x.Progress++ })
			if s.node.options.Faults != nil {
				s.strike(a.Message.Name.Round, &plan.Op{Kind: plan.Receive, Peer: a.Message.Name.From, Writes: []plan.Value{a.Message.Name.Value}})
			}
		}
		s.handle(m)
	case noRoom:
		s.fail(machine.Fail{Round: m.name.Round, Op: fmt.Sprintf("receive %s from %s", m.name.Value, m.name.From), Cause: m.err})
	case look:
		s.look(s.node.Now())
	case Harm:
		s.harm(m)
	case quit:
		s.closing = true
		close(m.heard)
	case end:
		if c, ok := s.actor.Machine.(machine.Closer); ok && (!s.dead || s.killed) {
			for _, e := range c.Close() {
				s.perform(e)
			}
		}
	}
}

// look takes down what the machine waits for. A dead one has failed, which says more.
func (s *shell) look(now time.Time) {
	if s.dead {
		return
	}
	s.looked = now
	s.ledger.answer(s.actor.Machine.Waiting())
}

// occasion says what a machine was told when it panicked.
func occasion(message any) (plan.Round, string) {
	switch m := message.(type) {
	case machine.Arrived:
		return m.Message.Name.Round, fmt.Sprintf("receipt of %s from %s", m.Message.Name.Value, m.Message.Name.From)
	case *flight:
		return m.launch.Round, fmt.Sprintf("completion of %s", m.launch.Op)
	}
	return plan.Round{}, fmt.Sprintf("%T", message)
}

func (s *shell) handle(e machine.Event) {
	var effects []machine.Effect
	if s.ends() || s.closing {
		effects = machine.Discard(e)
	} else {
		effects = s.actor.Machine.Handle(e)
	}
	for _, e := range effects {
		s.perform(e)
	}
	if now := s.node.Now(); now.Sub(s.looked) >= lookEvery {
		s.look(now)
	}
}

// ends reports whether the life is over. One that is retired is at once, whatever it hung in or has in its mailbox: its
// successor goes on from what the others know of it by then.
func (s *shell) ends() bool {
	select {
	case <-s.retired:
		s.dead, s.killed = true, true
		s.broken.Store(true)
	default:
	}
	return s.dead
}

func (s *shell) perform(e machine.Effect) {
	if d, ok := e.(machine.Drop); ok {
		s.drop(d.Payload)
		return
	}
	if s.ends() {
		return
	}
	switch e := e.(type) {
	case machine.Send:
		s.send(*e.Message)
	case machine.Launch:
		s.launch(e)
	case machine.Refused:
		s.refused(e)
	case machine.Fail:
		s.fail(e)
	case machine.Committed:
		// A machine says so when it opens a round.
		s.ledger.open(e.Round, time.Now())
		if s.actor.Incarnation > 0 {
			s.node.failures.kick() // how far a recovery is, others want to know soon
		}
		if s.node.options.Observer.Committed != nil {
			s.node.options.Observer.Committed(s.id, e.Round)
		}
	case machine.Announce:
		s.node.announce(e.PeerIs)
	case machine.Stop:
		s.node.stopped(e.Err)
	default:
		panic(fmt.Sprintf("actors: %s wants an effect %T, which is not known", s.id, e))
	}
}

func (s *shell) send(m machine.Message) {
	if s.node.options.Faults != nil {
		s.strike(m.Name.Round, &plan.Op{Kind: plan.Send, Peer: m.Name.To, As: m.Name.Value})
	}
	if s.ends() {
		return
	}
	at, _ := s.node.directory.get(m.Name.To)
	away := at.node != s.node.options.Index
	// What stays in the process is by far the most, and only the small part of it is worth a look at every byte.
	if traffic := TrafficOf(m.Name.Value.Kind); away || traffic == Activation || traffic == Gradient {
		m.Sum = sumOf(m.Payload)
	}
	if s.waylay(m) {
		return
	}
	if err := s.node.post(m); err != nil {
		s.fail(machine.Fail{Round: m.Name.Round, Op: fmt.Sprintf("send %s to %s", m.Name.Value, m.Name.To), Cause: err})
		return
	}
	if m.Payload != nil {
		traffic, bytes := TrafficOf(m.Name.Value.Kind), m.Payload.Bytes()
		s.ledger.update(func(x *Stats) {
			x.Sent[traffic] += bytes
			if away {
				x.Moved[traffic] += bytes
			}
		})
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf is the checksum of a payload; 0 where there is none that the processor can address.
func sumOf(p machine.Payload) uint32 {
	view, err := bytesOf(p)
	if err != nil {
		return 0
	}
	return crc32.Checksum(view, castagnoli)
}

// launch puts an operation on the stream. The payloads that it reads are the machine's, which keeps
// them until the Completed.
func (s *shell) launch(l machine.Launch) {
	harm := s.strike(l.Round, l.Op)
	if s.ends() {
		return
	}
	s.launched++
	s.work.enter()
	f := s.flight(l, harm)
	s.actor.Stream.Do(f.work, f.done)
}

// report performs a Finish: its payload is what the actor did in the round.
func (s *shell) report(f *flight) machine.Completed {
	c := machine.Completed{Round: f.launch.Round, Op: f.launch.Index, Err: f.err}
	if f.err != nil {
		return c
	}
	b, err := proto.Marshal(s.actorReport(f.launch.Round))
	if err != nil {
		c.Err = err
		return c
	}
	c.Out = []machine.Payload{machine.Blob(b)}
	return c
}

func (s *shell) actorReport(r plan.Round) *messages.ActorReport {
	round, all, elapsed, window := s.ledger.inRound(time.Now())
	return &messages.ActorReport{
		Actor:     string(s.id),
		Node:      s.node.options.Name,
		Round:     protoRound(r),
		ElapsedNs: int64(elapsed),
		BusyNs:    int64(round.Busy),
		WaitingNs: int64(max(elapsed-round.Busy, 0)),
		PeakBytes: s.actor.Account.Peak(),
		HeldBytes: s.actor.Account.Held(),
		SentBytes: round.Sent.Map(),
		Restarts:  uint32(all.Incarnation),
		Refused:   all.Refused,

		MovedBytes:      round.Moved.Map(),
		ComputeBusyNs:   int64(round.Compute),
		ComputeWindowNs: int64(window),
	}
}

// drop releases a payload once everything launched so far is complete.
func (s *shell) drop(p machine.Payload) {
	if p != nil {
		s.drops.add(s.launched, p)
	}
}

func (s *shell) refused(r machine.Refused) {
	s.ledger.update(func(x *Stats) { x.Refused++ })
	s.node.log("%s refused %s: %s", s.id, r.Name, r.Reason)
	if s.node.options.Observer.Refused != nil {
		s.node.options.Observer.Refused(r)
	}
}

// stack is what is told of where a panic was: nothing if a fault asked for it.
func stack(v any, trace []byte) string {
	if v == errAsked {
		return ""
	}
	return "\n" + string(trace)
}

// fail tells the trainer, once.
func (s *shell) fail(f machine.Fail) {
	if p := (*device.Panic)(nil); errors.As(f.Cause, &p) {
		s.node.log("%s panicked at %s: %v%s", s.id, f.Op, p.Value, stack(p.Value, p.Stack))
	}
	if s.told {
		return
	}
	s.told = true
	s.ledger.update(func(x *Stats) { x.Failure = f.Cause.Error() })
	s.node.failed(machine.Failed{
		Actor: s.id, Incarnation: s.actor.Incarnation, Node: s.node.options.Name,
		Round: f.Round, Op: f.Op, Cause: f.Cause.Error(),
	})
}

func (s *shell) stats() Stats {
	x := s.ledger.read(s.node.Now())
	x.Peak, x.Held = s.actor.Account.Peak(), s.actor.Account.Held()
	return x
}
