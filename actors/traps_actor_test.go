package actors

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// The tests of this file are about what protoactor does to those who trust it.

// TestProtoactorDropsTheMessageThatPanics is why a shell lets no panic out: a message whose handling
// panics is not handled again, and the actor starts afresh.
func TestProtoactorDropsTheMessageThatPanics(t *testing.T) {
	quiet := func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }
	s := actor.NewActorSystem(actor.WithLoggerFactory(quiet))
	defer s.Shutdown()
	seen := make(chan string, 10)
	pid := s.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(string); ok {
			seen <- m
			if m == "b" {
				panic("b")
			}
		}
	}))
	for _, m := range []string{"a", "b", "c"} {
		s.Root.Send(pid, m)
	}
	for _, want := range []string{"a", "b", "c"} {
		if got := receive(t, seen, "message"); got != want {
			t.Fatalf("message %q, want %q", got, want)
		}
	}
	if err := s.Root.PoisonFuture(pid).Wait(); err != nil {
		t.Fatal(err)
	}
	if len(seen) > 0 {
		t.Fatalf("message %q came again", <-seen)
	}
}

// TestMessagesOutliveAPanic: what an actor sent is still there, for whoever takes the place of the one
// that panicked; and what waited in the mailbox of that one is given back, not lost.
func TestMessagesOutliveAPanic(t *testing.T) {
	c := newCast(t, Options{Placement: place(plan.Trainer, stage0, stage1)})
	failed := make(chan machine.Failed, 1)
	c.play(plan.Trainer, func(e machine.Event) []machine.Effect {
		failed <- e.(machine.Failed)
		return nil
	}, nil)
	c.play(stage1, func(e machine.Event) []machine.Effect {
		a := e.(machine.Arrived)
		a.Message.Payload.Release()
		if a.Message.Name.Value.Lo == 1 {
			panic("cannot")
		}
		return nil
	}, nil)
	held := device.NewAccount("outbox", 0)
	const n = 5
	var outbox []machine.Message
	c.play(stage0, func(machine.Event) []machine.Effect {
		var out []machine.Effect
		for i := range n {
			m := machine.Message{Name: named(stage0, stage1, 1, activation(i)), Payload: tensor(t, held, 100, byte(i))}
			outbox = append(outbox, m)
			out = append(out, machine.Send{Message: &m})
		}
		return out
	}, nil)
	if err := c.Send(stage0, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	if f := receive(t, failed, "failure"); f.Actor != stage1 || !strings.Contains(f.Cause, "cannot") {
		t.Fatalf("failure %+v", f)
	}
	// One reference each is left: the outbox's.
	eventually(t, "the mailbox is given back", func() bool {
		for _, m := range outbox {
			if m.Payload.(machine.Tensor).Buffer.(*fakeBuffer).count() != 1 {
				return false
			}
		}
		return true
	})
	for i, m := range outbox {
		want := make([]byte, 400)
		fill(want, byte(i))
		if string(m.Payload.(machine.Tensor).HostBytes()) != string(want) {
			t.Fatalf("message %d was overwritten", i)
		}
		m.Payload.Release()
	}
	if held.Held() != 0 {
		t.Fatal("a reference was lost")
	}
}

// TestMailboxesDoNotBlock: a bounded mailbox of protoactor makes its sender spin when it is full, and
// an actor that sends to itself hang for ever.
func TestMailboxesDoNotBlock(t *testing.T) {
	c := newCast(t, Options{Placement: place(stage0)})
	const n = 20000
	open := make(chan struct{})
	done := make(chan struct{})
	next := 0
	c.play(stage0, func(e machine.Event) []machine.Effect {
		switch e := e.(type) {
		case machine.Begin:
			<-open
			var out []machine.Effect
			for i := range n { // to itself
				out = append(out, machine.Send{Message: &machine.Message{Name: named(stage0, stage0, 1, activation(n+i))}})
			}
			return out
		case machine.Arrived:
			if e.Message.Name.Value.Lo != next {
				panic(fmt.Sprintf("message %d, want %d", e.Message.Name.Value.Lo, next))
			}
			if next++; next == 2*n {
				close(done)
			}
		}
		return nil
	}, nil)
	if err := c.Send(stage0, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := c.Send(stage0, machine.Arrived{Message: machine.Message{Name: named(stage0, stage0, 1, activation(i))}}); err != nil {
			t.Fatal(err)
		}
	}
	close(open)
	receive(t, done, "end of the messages")
}
