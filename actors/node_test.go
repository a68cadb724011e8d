package actors

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

func TestOptionsAndActorsThatMakeNoSense(t *testing.T) {
	for _, test := range []struct {
		o    Options
		says string
	}{
		{Options{}, "name of the job"},
		{Options{Job: "j", Placement: []plan.Actor{{ID: stage0}, {ID: stage0, Node: 1}}}, "node 0 and on node 1"},
		{Options{Job: "j", Placement: []plan.Actor{{ID: stage0, Node: 1}}}, "has no server"},
	} {
		if _, err := NewNode(test.o); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("error %v, want %q", err, test.says)
		}
	}
	c := newCast(t, Options{Placement: place(stage0)})
	c.directory.place(stage1, 1)
	whole := Actor{
		Machine: &fakeMachine{id: stage0, handle: discard}, Executor: &fakeExecutor{},
		Device: fakeDevice{}, Account: device.NewAccount("a", 0), Stream: &fakeStream{},
	}
	for _, test := range []struct {
		change func(*Actor)
		says   string
	}{
		{func(a *Actor) { a.Machine = &fakeMachine{id: "stage.p7.d0"} }, "not in the placement"},
		{func(a *Actor) { a.Machine = &fakeMachine{id: stage1} }, "placed on node 1"},
		{func(a *Actor) { a.Account = nil }, "needs an executor"},
		{func(a *Actor) { a.Incarnation = -1 }, "incarnation -1"},
	} {
		a := whole
		test.change(&a)
		if err := c.Spawn(a); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("error %v, want %q", err, test.says)
		}
	}
	if err := c.Spawn(whole); err != nil {
		t.Fatal(err)
	}
	if err := c.Spawn(whole); err == nil || !strings.Contains(err.Error(), "alive on this node already") {
		t.Errorf("error %v", err)
	}
	if _, err := c.Coordinate(Coordination{Nodes: 2}); err == nil || !strings.Contains(err.Error(), "needs a server") {
		t.Errorf("error %v", err)
	}
}

// TestCloseNamesWhoDoesNotEnd: an operation that hangs is not waited for without end.
func TestCloseNamesWhoDoesNotEnd(t *testing.T) {
	open := make(chan struct{})
	runs := make(chan struct{})
	c := newCast(t, Options{Placement: place(stage0, stage1)})
	c.play(stage1, discard, nil)
	op := &plan.Op{Kind: plan.Forward, Hi: 2}
	c.spawn(&fakeMachine{id: stage0, handle: func(e machine.Event) []machine.Effect {
		if _, ok := e.(machine.Begin); ok {
			return []machine.Effect{machine.Launch{Run: &machine.Run{Op: op}}}
		}
		return machine.Discard(e)
	}, wait: func() machine.Wait { return machine.Wait{Op: op.String(), Running: true} }},
		&fakeExecutor{run: func(plan.Round, *plan.Op, []machine.Payload) ([]machine.Payload, error) {
			close(runs)
			<-open
			return nil, nil
		}})
	if err := c.Send(stage0, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	receive(t, runs, "start of the operation")
	eventually(t, "the stats say what runs", func() bool { return c.Stats()[0].Wait.Running })
	err := c.Close(within(50 * time.Millisecond))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "stage.p0.d0 has not ended: running forward layers 0..1") || strings.Contains(err.Error(), "stage.p1.d0") {
		t.Fatalf("error %v", err)
	}
	close(open)
	// The completion finds nobody, and that is all.
	eventually(t, "the operation ends", func() bool {
		select {
		case <-c.local(plan.StageID(0, 0)).work.idle():
			return true
		default:
			return false
		}
	})
}

// closer is a machine that holds a payload until it is closed.
type closer struct {
	fakeMachine
	holds machine.Payload
}

func (c *closer) Close() []machine.Effect { return []machine.Effect{machine.Drop{Payload: c.holds}} }

func TestCloseGivesBackWhatMachinesHold(t *testing.T) {
	held := device.NewAccount("p", 0)
	c := newCast(t, Options{Placement: place(stage0)})
	m := &closer{fakeMachine{id: stage0, handle: discard}, tensor(t, held, 4, 1)}
	c.spawn(m, nil)
	// What is in the mailbox is handled, or given back.
	for range 100 {
		p := tensor(t, held, 4, 1)
		if err := c.Send(stage0, machine.Arrived{Message: machine.Message{Name: named(stage1, stage0, 0, activation(0)), Payload: p}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(within(patience)); err != nil {
		t.Fatal(err)
	}
	if n := held.Held(); n != 0 {
		t.Fatalf("%d bytes are held", n)
	}
	if err := c.Spawn(Actor{Machine: m, Executor: &fakeExecutor{}, Device: fakeDevice{}, Account: held, Stream: &fakeStream{}}); err == nil {
		t.Fatal("a closed node takes actors")
	}
}

// TestOperationsBehindAFailureDoNotRun: they would read what was never made.
func TestOperationsBehindAFailureDoNotRun(t *testing.T) {
	ran := make(chan int, 3)
	done := make(chan error, 3)
	c := newCast(t, Options{Placement: place(stage0)})
	c.play(stage0, func(e machine.Event) []machine.Effect {
		switch e := e.(type) {
		case machine.Begin:
			var out []machine.Effect
			for i := range 3 {
				out = append(out, machine.Launch{Run: &machine.Run{Index: i, Op: &plan.Op{Kind: plan.Forward, Micro: i}}})
			}
			return out
		case machine.Completed:
			done <- e.Err
		}
		return nil
	}, &fakeExecutor{run: func(_ plan.Round, op *plan.Op, _ []machine.Payload) ([]machine.Payload, error) {
		ran <- op.Micro
		if op.Micro == 1 {
			return nil, errors.New("burnt")
		}
		return nil, nil
	}})
	if err := c.Send(stage0, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	var errs []error
	for range 3 {
		errs = append(errs, receive(t, done, "completion"))
	}
	if errs[0] != nil || errs[1] == nil || !errors.Is(errs[2], errNotRun) || len(ran) != 2 {
		t.Fatalf("errors %v, %d operations ran", errs, len(ran))
	}
}

func TestTheSamePortAgain(t *testing.T) {
	first := startServer(t, ServerOptions{})
	address := first.Addr()
	first.Close()
	for range 10 {
		s := startServer(t, ServerOptions{Listen: address})
		if s.Addr() != address {
			t.Fatalf("listens at %s, was told %s", s.Addr(), address)
		}
		s.Close()
	}
}
