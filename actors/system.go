package actors

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// system is all that the rest of the package knows of protoactor: named actors with unbounded
// mailboxes, that take one message at a time.
//
// Mailboxes are unbounded because the bounded ones of this version spin or deadlock when they are
// full. What is in them is bounded all the same: by the plan, which says how many messages a
// program receives in a round, and by the window of each edge on its way over the network.
type system struct {
	actors *actor.ActorSystem
}

func newSystem() *system {
	quiet := func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }
	return &system{actors: actor.NewActorSystem(
		actor.WithLoggerFactory(quiet),
		// A letter to the dead starts a goroutine that lives as long as this.
		actor.WithDeadLetterThrottleInterval(time.Millisecond),
	)}
}

// address is where an actor gets its messages.
type address struct {
	system *system
	pid    *actor.PID
	// gone is closed when the actor has handled its last message.
	gone chan struct{}
}

// spawn starts an actor. receive gets its messages one at a time, in the order of the tells of each
// sender. It must not panic: protoactor would drop the message and start afresh.
func (s *system) spawn(name string, receive func(message any)) (*address, error) {
	a := &address{system: s, gone: make(chan struct{})}
	props := actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Stopped:
			close(a.gone)
		case actor.SystemMessage, actor.AutoReceiveMessage:
			// Its life is not its own business.
		default:
			receive(m)
		}
	})
	pid, err := s.actors.Root.SpawnNamed(props, name)
	if err != nil {
		return nil, fmt.Errorf("actors: %s: %w", name, err)
	}
	a.pid = pid
	return a, nil
}

// tell queues a message. It never blocks. After stop, messages vanish.
func (a *address) tell(message any) { a.system.actors.Root.Send(a.pid, message) }

// stop lets the actor handle what is in its mailbox and ends it.
func (a *address) stop(ctx context.Context) error {
	a.system.actors.Root.Poison(a.pid)
	select {
	case <-a.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("actors: %s still handles a message: %w", a.pid.Id, context.Cause(ctx))
	}
}

func (s *system) close() { s.actors.Shutdown() }
