package actors

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/troupe-train/troupe/messages"
)

// Join asks the coordinator for a place, until ctx ends: for the number of the hello, or if that is taken, for any. As long
// as all are taken it asks again. The server has joined that of the coordinator; when nobody listens there any more, the
// error is ErrOver. From then on the member sends heartbeats, until Leave.
func Join(ctx context.Context, s *Server, h Hello) (*Member, error) {
	c, err := openControl(s)
	if err != nil {
		return nil, err
	}
	m := &Member{
		control: c, hello: h, server: s,
		stop: make(chan struct{}), done: make(chan struct{}),
		unsettled: make(chan struct{}, 1),
		state:     messages.State_STATE_JOINED, phase: messages.Phase_PHASE_GATHERING, changed: make(chan struct{}),
	}
	watched, end := s.whileThere(ctx)
	defer end()
	if err := m.join(watched); err != nil {
		c.close()
		return nil, err
	}
	go m.run()
	return m, nil
}

// fullWait is how long a node waits that was told that all numbers are taken.
const fullWait = 500 * time.Millisecond

// join asks until there is a place.
func (m *Member) join(ctx context.Context) error {
	number := m.hello.Node
	for {
		if err := m.server.options.Valve.pass(ctx, 0); err != nil {
			return fmt.Errorf("actors: no welcome from the coordinator: %w", err)
		}
		answer, err := m.control.ask(ctx, helloSubject, &messages.Control{Body: &messages.Control_Hello{Hello: &messages.Hello{
			Node: int32(number), Name: m.hello.Name, Version: m.hello.Version,
			Cores: uint32(m.hello.Cores), Address: usable(m.server.Addr()), Origin: uint32(m.hello.Origin),
		}}})
		if over := context.Cause(ctx); errors.Is(over, ErrOver) {
			return over
		}
		if err != nil {
			return fmt.Errorf("actors: no welcome from the coordinator: %w", err)
		}
		w := answer.GetWelcome()
		if w == nil {
			return errors.New("actors: the coordinator answers a hello with something else")
		}
		switch {
		case w.Refusal == "":
			return m.enter(answer.Session, w)
		case w.Room == messages.Room_ROOM_OTHER:
			number = -1
		case w.Room == messages.Room_ROOM_LATER:
			select {
			case <-ctx.Done():
				return fmt.Errorf("actors: %w: %s: %w", ErrRefused, w.Refusal, context.Cause(ctx))
			case <-time.After(fullWait):
			}
		default:
			return fmt.Errorf("actors: %w: %s", ErrRefused, w.Refusal)
		}
	}
}

// enter takes in the welcome of a coordinator.
func (m *Member) enter(coordinator string, w *messages.Welcome) error {
	m.coordinator = coordinator
	m.index = int(w.Node)
	if m.hello.Name == "" {
		m.hello.Name = nodeName(m.index)
	}
	m.welcome = Welcome{
		Job: w.Job, Options: w.Options, Fingerprint: w.Fingerprint, Attempt: w.Attempt,
		Placement: planPlacement(w.Placement), Nodes: int(w.Nodes), Late: w.Late, Struck: int(w.Struck),
	}
	m.table = w.Table
	m.server.options.Valve.is(m.index)
	m.beat = time.Duration(w.HeartbeatNs)
	m.silence = newSilence(m.beat, int(w.Suspect))
	m.silence.hear(0, m.now())
	m.doubts = newDoubts(m.server, m.silence.limit)
	return m.control.subscribe(beatSubject, m.hear)
}

// whileThere ends a context, with ErrOver as its cause, when nobody listens at the address that the server has joined.
// That no answer comes says nothing: the way there may be cut for a while.
func (s *Server) whileThere(ctx context.Context) (context.Context, func()) {
	address := s.options.Join
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for address != "" {
			switch err := s.answers(ctx, address); {
			case errors.Is(err, errStranger):
				cancel(fmt.Errorf("actors: %w: somebody else listens at %s", ErrOver, address))
				return
			case gone(err):
				cancel(overAt(address))
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(lastAnswer):
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

func overAt(address string) error {
	return fmt.Errorf("actors: %w: nobody listens at %s any more", ErrOver, address)
}

// gone says that the process which listened somewhere is there no more: its machine refuses the connection, or another process
// has the address.
func gone(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errStranger) }
