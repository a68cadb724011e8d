package actors

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

const (
	stage0 plan.ActorID = "stage.p0.d0"
	stage1 plan.ActorID = "stage.p1.d0"
	shard0 plan.ActorID = "shard.p0.d0"
)

func activation(micro int) plan.Value {
	return plan.Value{Kind: plan.Activation, Index: 1, Lo: micro, Piece: -1}
}

func TestLocalMessagesAreHandedOverByReferenceInOrder(t *testing.T) {
	c := newCast(t, Options{Placement: place(stage0, stage1)})
	const n = 1000
	got := make(chan machine.Message, n)
	c.play(stage1, func(e machine.Event) []machine.Effect {
		if a, ok := e.(machine.Arrived); ok {
			got <- a.Message
		}
		return nil
	}, nil)
	held := device.NewAccount("sender", 0)
	payload := tensor(t, held, 8, 1)
	c.play(stage0, func(e machine.Event) []machine.Effect {
		var out []machine.Effect
		if _, ok := e.(machine.Begin); ok {
			for i := range n {
				out = append(out, machine.Send{Message: &machine.Message{Name: named(stage0, stage1, 1, activation(i)), Payload: payload}})
			}
		}
		return out
	}, nil)
	if err := c.Send(stage0, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m := receive(t, got, "message")
		if m.Name.Value.Lo != i {
			t.Fatalf("message %d came as number %d", m.Name.Value.Lo, i)
		}
		if m.Payload.(machine.Tensor).Buffer != payload.Buffer {
			t.Fatal("the payload was copied")
		}
		m.Payload.Release()
	}
	payload.Release()
	if held.Held() != 0 {
		t.Fatalf("%d bytes are still held: a reference was lost", held.Held())
	}
	eventually(t, "what was sent is counted", func() bool { return c.Stats()[0].Sent.Map()["activation"] == n*32 })
}

// TestLaunch follows the values of a program through the stream: Run, then Free, then the
// Completed with what Run returned; and a Drop that waits for what was launched before it.
func TestLaunch(t *testing.T) {
	c := newCast(t, Options{Placement: place(stage0)})
	var order []string
	gate := make(chan struct{})
	dropped := device.NewAccount("dropped", 0)
	p := tensor(t, dropped, 4, 1)
	heldAtRun := make(chan int64, 1)
	done := make(chan machine.Completed, 1)
	op := &plan.Op{Kind: plan.Forward, Frees: []plan.Value{{Kind: plan.Saved, Lo: 7, Piece: -1}, activation(7)}}
	c.play(stage0, func(e machine.Event) []machine.Effect {
		switch e := e.(type) {
		case machine.Begin:
			return []machine.Effect{
				machine.Launch{Run: &machine.Run{Round: plan.Round{Step: 3, Phase: plan.TrainPhase}, Index: 5, Op: op, In: []machine.Payload{p}}},
				machine.Drop{Payload: p},
			}
		case machine.Completed:
			done <- e
		}
		return nil
	}, &fakeExecutor{
		run: func(_ plan.Round, o *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
			<-gate
			heldAtRun <- dropped.Held()
			order = append(order, "run "+o.Kind.String())
			return []machine.Payload{machine.Blob("out")}, nil
		},
		free: func(v plan.Value) { order = append(order, "free "+v.String()) },
	})
	if err := c.Send(stage0, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	close(gate)
	if h := receive(t, heldAtRun, "run"); h != 16 {
		t.Fatalf("the operation saw %d bytes of what was dropped after its launch, want 16", h)
	}
	e := receive(t, done, "completion")
	if e.Op != 5 || e.Err != nil || len(e.Out) != 1 || string(e.Out[0].(machine.Blob)) != "out" || e.Round.Step != 3 {
		t.Fatalf("completed %+v", e)
	}
	if want := []string{"run forward", "free saved chunk 0 micro-batch 7"}; !slices.Equal(order, want) {
		t.Fatalf("order %q, want %q", order, want)
	}
	if dropped.Held() != 0 {
		t.Fatal("the drop was forgotten")
	}
}

func TestFailures(t *testing.T) {
	round := plan.Round{Step: 4, Phase: plan.TrainPhase}
	launch := machine.Launch{Run: &machine.Run{Round: round, Op: &plan.Op{Kind: plan.Forward, Lo: 1, Hi: 2, Micro: 3}}}
	relay := func(e machine.Event) []machine.Effect {
		switch e := e.(type) {
		case machine.Begin:
			return []machine.Effect{launch, launch}
		case machine.Completed:
			if e.Err != nil {
				return []machine.Effect{machine.Fail{Round: e.Round, Op: launch.Op.String(), Cause: e.Err}}
			}
		}
		return nil
	}
	for _, test := range []struct {
		name   string
		handle func(machine.Event) []machine.Effect
		run    func(plan.Round, *plan.Op, []machine.Payload) ([]machine.Payload, error)
		cause  string
		logged string
	}{
		{
			name:   "operation returns an error",
			handle: relay,
			run: func(plan.Round, *plan.Op, []machine.Payload) ([]machine.Payload, error) {
				return nil, errors.New("no such token")
			},
			cause: "no such token",
		},
		{
			name:   "operation panics",
			handle: relay,
			run:    func(plan.Round, *plan.Op, []machine.Payload) ([]machine.Payload, error) { panic("index out of range") },
			cause:  "panic: index out of range",
			logged: "stack",
		},
		{
			name:   "machine panics",
			handle: func(machine.Event) []machine.Effect { panic("impossible state") },
			cause:  "panic: impossible state",
			logged: "shell.go",
		},
		{
			name: "message to nobody",
			handle: func(machine.Event) []machine.Effect {
				return []machine.Effect{machine.Send{Message: &machine.Message{Name: named(stage0, "stage.p9.d9", 4, activation(0))}}}
			},
			cause: "no such actor",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			told := make(chan machine.Failed, 8)
			c := newCast(t, Options{Placement: place(plan.Trainer, stage0)})
			c.play(plan.Trainer, func(e machine.Event) []machine.Effect {
				f := e.(machine.Failed)
				told <- f
				return []machine.Effect{machine.Stop{Err: errors.New(f.Cause)}}
			}, nil)
			c.play(stage0, test.handle, &fakeExecutor{run: test.run})
			if err := c.Send(stage0, machine.Begin{}); err != nil {
				t.Fatal(err)
			}
			f := receive(t, told, "failure")
			if f.Actor != stage0 || f.Node != "node 0" || !strings.Contains(f.Cause, test.cause) {
				t.Fatalf("the trainer was told %+v, want cause %q", f, test.cause)
			}
			if err := receive(t, c.stopped, "stop"); err == nil || !strings.Contains(err.Error(), test.cause) {
				t.Fatalf("stopped with %v", err)
			}
			if log := strings.Join(c.lines.get(), "\n"); !strings.Contains(log, test.logged) {
				t.Fatalf("the log lacks %q:\n%s", test.logged, log)
			}
			// It goes on taking messages, and fails once.
			if err := c.Send(stage0, machine.Begin{}); err != nil {
				t.Fatal(err)
			}
			c.Send(stage0, machine.Tick{})
			c.Stats()
			eventually(t, "the failure is in the stats", func() bool {
				return strings.Contains(c.Stats()[0].Failure, test.cause)
			})
			if len(told) > 0 {
				t.Fatalf("the trainer was told twice: %+v", <-told)
			}
		})
	}
}

func TestTrainerPanicEndsTheRun(t *testing.T) {
	c := newCast(t, Options{Placement: place(plan.Trainer)})
	c.play(plan.Trainer, func(machine.Event) []machine.Effect { panic("lost count") }, nil)
	if err := c.Send(plan.Trainer, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, c.stopped, "stop"); err == nil || !strings.Contains(err.Error(), "trainer") || !strings.Contains(err.Error(), "lost count") {
		t.Fatalf("stopped with %v", err)
	}
}

func TestFinishReportsTheRound(t *testing.T) {
	c := newCast(t, Options{Placement: place(stage0, stage1), Name: "b"})
	reports := make(chan machine.Payload, 1)
	r := plan.Round{Step: 9, Phase: plan.TrainPhase}
	payload := tensor(t, device.NewAccount("p", 0), 10, 1)
	c.play(stage1, discard, nil)
	c.play(stage0, func(e machine.Event) []machine.Effect {
		switch e := e.(type) {
		case machine.Begin:
			name := named(stage0, stage1, 9, plan.Value{Kind: plan.Gradient, Hi: 1})
			return []machine.Effect{
				machine.Committed{Round: r},
				machine.Launch{Run: &machine.Run{Round: r, Index: 0, Op: &plan.Op{Kind: plan.Forward}}},
				machine.Send{Message: &machine.Message{Name: name, Payload: payload}},
				machine.Launch{Run: &machine.Run{Round: r, Index: 1, Op: &plan.Op{Kind: plan.Finish}}},
			}
		case machine.Completed:
			if e.Op == 1 {
				reports <- e.Out[0]
			}
		}
		return nil
	}, &fakeExecutor{run: func(_ plan.Round, op *plan.Op, _ []machine.Payload) ([]machine.Payload, error) {
		if op.Kind == plan.Finish {
			return nil, fmt.Errorf("finish is the shell's")
		}
		return nil, nil
	}})
	if err := c.Send(stage0, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	var report messages.ActorReport
	if err := proto.Unmarshal(receive(t, reports, "report").(machine.Blob), &report); err != nil {
		t.Fatal(err)
	}
	if report.Actor != string(stage0) || report.Node != "b" || report.Round.Step != 9 || report.SentBytes["reduce"] != 40 ||
		report.BusyNs <= 0 || report.ElapsedNs < report.BusyNs || report.WaitingNs != report.ElapsedNs-report.BusyNs {
		t.Fatalf("report %v", &report)
	}
}

func TestUnknownActorIsAnErrorAtOnce(t *testing.T) {
	c := newCast(t, Options{Placement: place(stage0, stage1)})
	c.play(stage0, discard, nil)
	held := device.NewAccount("p", 0)
	for _, to := range []plan.ActorID{"stage.p7.d0", stage1} {
		p := tensor(t, held, 4, 1)
		err := c.Send(to, machine.Arrived{Message: machine.Message{Name: named(stage0, to, 0, activation(0)), Payload: p}})
		if !errors.Is(err, ErrUnknownActor) {
			t.Fatalf("to %s: %v", to, err)
		}
	}
	if held.Held() != 0 {
		t.Fatal("the payloads were not released")
	}
}

// TestSendsMeetBirths: whoever sends to an actor that dies and is born again meanwhile never hears that it is unknown. What
// comes too early vanishes, and is sent again by whoever is told of the new life.
func TestSendsMeetBirths(t *testing.T) {
	var ids []plan.ActorID
	for d := range 300 {
		ids = append(ids, plan.StageID(0, d))
	}
	c := newCast(t, Options{Placement: place(ids...)})
	account, stream := device.NewAccount("a", 0), newFakeStream()
	c.streams = append(c.streams, stream)
	spawn := func(id plan.ActorID, life int) {
		if err := c.Spawn(Actor{Machine: &fakeMachine{id: id, handle: discard}, Executor: &fakeExecutor{}, Device: fakeDevice{}, Account: account, Stream: stream, Incarnation: life}); err != nil {
			t.Fatal(err)
		}
	}
	var now atomic.Int32
	ended := make(chan error, 1)
	for _, id := range ids {
		spawn(id, 0)
	}
	go func() {
		for {
			i := int(now.Load())
			if i == len(ids) {
				ended <- nil
				return
			}
			if err := c.Send(ids[i], machine.Begin{}); err != nil {
				ended <- err
				return
			}
		}
	}()
	for i, id := range ids {
		if err := c.Retire(within(patience), id); err != nil {
			t.Fatal(err)
		}
		spawn(id, 1)
		now.Store(int32(i + 1))
	}
	if err := receive(t, ended, "end of the sends"); err != nil {
		t.Fatal(err)
	}
}

// TestRetiredLifeDoesNothingMore: a life that hangs when it is retired, and goes on because of that, neither does the rest of what
// it was at nor takes what has piled up meanwhile. Its successor begins from what the others know by then.
func TestRetiredLifeDoesNothingMore(t *testing.T) {
	n := newCast(t, Options{Placement: []plan.Actor{{ID: plan.Trainer}, {ID: stage0}, {ID: stage1}}})
	hangs, handled := make(chan struct{}), 0
	heard := make(chan machine.Name, 10)
	n.play(stage1, func(e machine.Event) []machine.Effect {
		if a, ok := e.(machine.Arrived); ok {
			heard <- a.Message.Name
		}
		return nil
	}, nil)
	n.play(stage0, func(e machine.Event) []machine.Effect {
		if _, ok := e.(machine.Arrived); !ok {
			return nil
		}
		if handled++; handled > 1 {
			t.Error("it takes a message when it is retired")
		}
		retired := n.local(stage0).retired
		close(hangs)
		<-retired
		m := &machine.Message{Name: named(stage0, stage1, 1, activation(0)), Payload: machine.Blob("x")}
		return []machine.Effect{machine.Committed{Round: m.Name.Round}, machine.Send{Message: m}}
	}, nil)
	for i := range 3 {
		if err := n.Send(stage0, machine.Arrived{Message: machine.Message{Name: named(plan.Trainer, stage0, int64(i), activation(i))}}); err != nil {
			t.Fatal(err)
		}
	}
	<-hangs
	if err := n.Retire(within(patience), stage0); err != nil {
		t.Fatal(err)
	}
	if len(heard) > 0 {
		t.Errorf("it has sent %v", <-heard)
	}
}
