package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/messages"
)

// Member is a node other than the coordinator, in the eyes of the run.
type Member struct {
	control *control
	doubts  doubts
	server  *Server
	hello   Hello
	index   int
	welcome Welcome
	// coordinator is the session of the coordinator that has let this node in: it hears no other.
	coordinator string
	beat        time.Duration // between heartbeats

	stop chan struct{}
	done chan struct{}
	// unsettled, of capacity 1, is told when the table has changed; settled is closed when the goroutine
	// has ended that follows it.
	unsettled chan struct{}
	settled   chan struct{}
	rests     sync.Once

	mu      sync.Mutex
	node    *Node
	table   *messages.Table // the newest
	resting bool            // the table is not followed any more
	state   messages.State
	missing []string
	leaving string
	unfit   bool
	phase   messages.Phase
	ending  bool   // the run ends after the step that is running
	newest  uint64 // attempt that any coordinator has spoken of
	silence *silence
	doubt   doubt // of the coordinator
	// changed is closed and made anew when phase changes or the coordinator is lost.
	changed chan struct{}
	// ended is why the run is over for this node; it says nothing while over is false.
	over  bool
	ended error
}

// now is the time by which the node decides.
func (m *Member) now() time.Time { return m.server.options.Clock.Now() }

// Index is the number of the node.
func (m *Member) Index() int { return m.index }

// Name is how people call the node.
func (m *Member) Name() string { return m.hello.Name }

// Welcome is what the coordinator had to say.
func (m *Member) Welcome() Welcome { return m.welcome }

// run sends heartbeats and listens for those of the coordinator.
func (m *Member) run() {
	defer close(m.done)
	ticker := time.NewTicker(m.beat)
	defer ticker.Stop()
	m.say()
	for {
		select {
		case <-m.stop:
			return
		case <-ticker.C:
		case <-m.news():
		}
		m.say()
		m.mu.Lock()
		if silent, lost := m.silence.check(m.now())[0]; lost {
			switch {
			case m.newest > m.welcome.Attempt: // its coordinator has ended while this node did not hear it
				m.end(ErrAgain)
			case !m.doubts.ask(&m.doubt, 0, m.server.options.Join, silent, m.answered):
				m.silent()
			}
		}
		m.mu.Unlock()
	}
}

// answered takes in whether the server that the node has joined, when its coordinator is silent, answers.
func (m *Member) answered(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.over || !m.doubt.open(): // it was heard
	case err == nil:
		m.silence.hear(0, m.now())
	default:
		m.silent()
	}
}

// silent gives the coordinator up. m.mu is held.
func (m *Member) silent() {
	m.end(fmt.Errorf("actors: the coordinator is lost: %w for %s", ErrLost, m.doubt.silent.Round(time.Millisecond)))
}

// news is told of when a local actor has failed.
func (m *Member) news() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node == nil {
		return nil
	}
	return m.node.failures.news
}

// say sends a heartbeat.
func (m *Member) say() {
	m.mu.Lock()
	node := m.node
	h := &messages.Heartbeat{
		Node: uint32(m.index), Name: m.hello.Name,
		State: m.state, Missing: m.missing, Leaving: m.leaving, Unfit: m.unfit,
	}
	m.mu.Unlock()
	if node != nil {
		node.heartbeat(h)
	}
	if m.server.options.Valve.shut(0) {
		return
	}
	m.control.publish(heartbeatSubject, &messages.Control{Body: &messages.Control_Heartbeat{Heartbeat: h}})
}

// hear takes a beat of the coordinator.
func (m *Member) hear(c *messages.Control, _ *nats.Msg) {
	b := c.GetBeat()
	if b == nil || m.server.options.Valve.shut(0) {
		return
	}
	if c.Session == m.coordinator {
		m.struck(b.Strikes)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Session != m.coordinator {
		// It is not obeyed. But if the own coordinator is silent, this is why.
		m.newest = max(m.newest, b.Attempt)
		return
	}
	if m.over {
		return
	}
	m.silence.hear(0, m.now())
	m.doubt = doubt{}
	if slices.Contains(b.Fenced, m.control.session) {
		m.end(fmt.Errorf("actors: %s: %w, and its actors live elsewhere", m.hello.Name, ErrFenced))
		return
	}
	if b.Table.GetVersion() > m.table.GetVersion() {
		m.table = b.Table
		m.follow()
	}
	if b.Ending && !m.ending {
		m.ending = true
		m.wake()
	}
	if b.Phase <= m.phase { // phases come in order, but beats may not
		return
	}
	m.phase = b.Phase
	if b.Phase == messages.Phase_PHASE_STOPPING {
		var err error
		if b.Again {
			err = ErrAgain
		} else if b.Reason != "" {
			err = fmt.Errorf("actors: the coordinator stops the run: %s", b.Reason)
		}
		m.end(err)
		return
	}
	m.wake()
}

// follow takes in the table. m.mu is held, so that tables are taken in in their order.
func (m *Member) follow() {
	if m.node == nil || m.resting {
		return
	}
	m.node.learn(m.table)
	select {
	case m.unsettled <- struct{}{}:
	default:
	}
}

// settle is the goroutine that retires actors and brings others to life, as the table says. It ends when
// unsettled is closed.
func (m *Member) settle(n *Node) {
	defer close(m.settled)
	for range m.unsettled {
		n.settle()
	}
}

// rest ends settle: from then on the node keeps the actors that it has.
func (m *Member) rest() {
	m.rests.Do(func() {
		m.mu.Lock()
		m.resting = true
		m.mu.Unlock()
		close(m.unsettled)
		if m.settled != nil {
			<-m.settled
		}
	})
}

// end ends the run for this node. m.mu is held.
func (m *Member) end(err error) {
	if !m.over {
		m.over, m.ended = true, err
		m.silence.forget(0)
		m.wake()
	}
}

func (m *Member) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// Ready says that the actors of this node are alive, finds out that those of the others are, and
// returns when the run begins, or is over in good order before this node has heard that it had begun. From then on, until Wait returns, the node follows the coordinator's table: it retires
// actors and brings others to life by its Options.Spawn. A fingerprint that differs from the coordinator's is refused.
func (m *Member) Ready(ctx context.Context, n *Node, fingerprint string) (err error) {
	if n.transport == nil || n.options.Index != m.index {
		return fmt.Errorf("actors: node %d without the server of %s is not what joined as node %d", n.options.Index, m.hello.Name, m.index)
	}
	if want := m.welcome.Fingerprint; fingerprint != want {
		return fmt.Errorf("actors: %w: the plan of %s has the fingerprint %s, the coordinator's has %s", ErrRefused, m.hello.Name, fingerprint, want)
	}
	m.mu.Lock()
	m.node, m.state = n, messages.State_STATE_SPAWNED
	m.settled = make(chan struct{})
	go m.settle(n)
	m.follow()
	m.mu.Unlock()
	defer func() {
		if err != nil {
			m.rest()
		}
	}()
	greeting, cancel := context.WithCancel(ctx)
	greeted := make(chan struct{})
	go func() {
		defer close(greeted)
		// To a node that comes late, nobody has anything to say yet, and some actors may be on their way elsewhere.
		if m.welcome.Late || n.transport.greet(greeting, m.lacks) == nil {
			m.mu.Lock()
			m.state = messages.State_STATE_READY
			m.mu.Unlock()
			m.say()
		}
	}()
	// The coordinator begins when all are ready, so there is nothing left to greet when it does.
	err = m.await(ctx, messages.Phase_PHASE_RUNNING)
	if !m.welcome.Late {
		cancel()
	}
	<-greeted
	cancel()
	return err
}

// lacks notes which actors do not answer yet.
func (m *Member) lacks(missing []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.missing = missing
}

// await returns when the run has come to a phase, or why it is over.
func (m *Member) await(ctx context.Context, phase messages.Phase) error {
	for {
		m.mu.Lock()
		over, ended, changed, reached := m.over, m.ended, m.changed, m.phase >= phase
		m.mu.Unlock()
		if over {
			return ended
		}
		if reached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leaveWait is how long a node that is asked to leave waits for word that the run ends anyway: whoever stops all processes of a
// run at once asks the coordinator, too.
const leaveWait = 500 * time.Millisecond

// Wait returns when the run is over: nil after an orderly end; else why the coordinator ended it, ErrAgain when another
// attempt begins, ErrLost when the coordinator is gone, ErrFenced when it has given this node up, or the cause of ctx. When
// ctx ends while the run ends in good order, it returns after that.
func (m *Member) Wait(ctx context.Context) error {
	defer m.rest()
	err := m.await(ctx, messages.Phase_PHASE_STOPPING)
	if ctx.Err() == nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	soon, cancel := context.WithTimeout(ctx, leaveWait)
	defer cancel()
	if !m.ends(soon) {
		return err
	}
	return m.await(ctx, messages.Phase_PHASE_STOPPING)
}

// ends reports whether the coordinator says that the run ends, before ctx does.
func (m *Member) ends(ctx context.Context) bool {
	for {
		m.mu.Lock()
		ends, changed := m.ending || m.over, m.changed
		m.mu.Unlock()
		if ends {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Leave says goodbye, when the actors of the node have ended: with a reason when the node leaves because of it, which is
// Unfit where another node would have to leave as well. The heartbeats end.
func (m *Member) Leave(reason error) {
	m.rest()
	close(m.stop)
	<-m.done
	m.doubts.end()
	m.mu.Lock()
	m.state = messages.State_STATE_LEFT
	if reason != nil {
		m.leaving, m.unfit = reason.Error(), errors.As(reason, new(Unfit))
	}
	m.node = nil
	m.mu.Unlock()
	m.say()
	// If this gets lost the coordinator finds the node silent.
	_ = m.control.conn.FlushTimeout(time.Second)
	m.control.close()
}
