package actors

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// attempt is an attempt at a run of two nodes: the first on the server s0, the other on s1.
type attempt struct {
	first, second *cast
	coordinator   *Coordinator
	member        *Member
	heard         chan machine.Name // what stage0 and stage1 got
}

func attemptAt(t testing.TB, number uint64, s0, s1 *Server) *attempt {
	t.Helper()
	a := &attempt{heard: make(chan machine.Name, 100)}
	self := func(self, peer plan.ActorID) func(machine.Event) []machine.Effect {
		return func(e machine.Event) []machine.Effect {
			switch e := e.(type) {
			case machine.Arrived:
				a.heard <- e.Message.Name
			case machine.Begin:
				m := &machine.Message{Name: named(self, peer, int64(number), activation(0)), Payload: machine.Blob("x")}
				return []machine.Effect{machine.Send{Message: m}}
			}
			return nil
		}
	}
	a.first = newCast(t, Options{Attempt: number, Placement: twoNodes(), Server: s0})
	a.first.play(plan.Trainer, discard, nil)
	a.first.play(stage0, self(stage0, stage1), nil)
	var err error
	if a.coordinator, err = a.first.Coordinate(Coordination{Nodes: 2, Version: "v1", Heartbeat: 20 * time.Millisecond, Suspect: 50}); err != nil {
		t.Fatal(err)
	}
	if a.member, err = Join(within(patience), s1, Hello{Node: 1, Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	if w := a.member.Welcome(); w.Attempt != number || w.Late {
		t.Fatalf("welcome %+v", w)
	}
	a.second = newCast(t, Options{Attempt: number, Index: 1, Placement: a.member.Welcome().Placement, Server: s1})
	a.second.play(stage1, self(stage1, stage0), nil)
	ready := make(chan error, 1)
	go func() { ready <- a.member.Ready(within(patience), a.second.Node, "") }()
	if err := errors.Join(a.coordinator.Gather(within(patience)), <-ready); err != nil {
		t.Fatal(err)
	}
	return a
}

// end ends an attempt in good order, and returns what its member hears of that.
func (a *attempt) end(t testing.TB, shut func(*Coordinator) error) error {
	t.Helper()
	heard := make(chan error, 1)
	go func() {
		err := a.member.Wait(within(patience))
		a.member.Leave(err)
		heard <- err
	}()
	if err := shut(a.coordinator); err != nil {
		t.Fatal(err)
	}
	return receive(t, heard, "end")
}

// TestProcessJoinsAgain: who says hello again has left, though its goodbye was lost. It has its number again at once.
func TestProcessJoinsAgain(t *testing.T) {
	s0 := startServer(t, ServerOptions{})
	s1, s2 := startServer(t, ServerOptions{Join: s0.Addr()}), startServer(t, ServerOptions{Join: s0.Addr()})
	node := newCast(t, Options{Placement: twoNodes(), Server: s0})
	c, err := node.Coordinate(Coordination{Nodes: 3, Version: "v1", Heartbeat: time.Second, Suspect: 50})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Shutdown(within(patience), "") }()
	var members []*Member
	for i, want := range []struct {
		server *Server
		number int
	}{{s1, 1}, {s2, 2}, {s1, 1}, {s1, 1}, {s2, 2}} {
		m, err := Join(within(patience), want.server, Hello{Node: want.number, Version: "v1"})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Leave(nil)
		members = append(members, m)
		if m.Index() != want.number {
			t.Fatalf("join %d: it is node %d, want %d", i, m.Index(), want.number)
		}
	}
	for i, m := range members[:3] {
		if i == 1 {
			continue
		}
		if err := m.Wait(within(patience)); !errors.Is(err, ErrFenced) {
			t.Errorf("membership %d ends with %v", i, err)
		}
	}
}

// TestOldAttemptIsNotHeard: a node that was stopped while its attempt ended and another began sends to actors that have the
// names, and the lives, of those that it knows. None of it is heard, nothing of the new attempt comes to it, and it finds out
// that its own is over.
func TestOldAttemptIsNotHeard(t *testing.T) {
	s0 := startServer(t, ServerOptions{})
	s1, s2 := startServer(t, ServerOptions{Join: s0.Addr()}), startServer(t, ServerOptions{Join: s0.Addr()})
	old := attemptAt(t, 1, s0, s1)
	// What a node that is stopped does not hear might as well not have been said.
	close(old.coordinator.stop)
	<-old.coordinator.done
	old.coordinator.control.close()
	if err := old.first.Close(within(patience)); err != nil {
		t.Fatal(err)
	}
	x := attemptAt(t, 2, s0, s2)
	if err := old.second.Send(stage1, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	unheard := func() bool {
		waits, _ := old.second.transport.linksOf(stage1)
		return waits > 0
	}
	eventually(t, "the old actor has sent something", unheard)
	for _, s := range []struct {
		node *cast
		id   plan.ActorID
	}{{x.first, stage0}, {x.second, stage1}} {
		if err := s.node.Send(s.id, machine.Begin{}); err != nil {
			t.Fatal(err)
		}
		if n := receive(t, x.heard, "message"); n.From != s.id || n.Round.Step != 2 {
			t.Fatalf("heard %v", n)
		}
	}
	if err := old.member.Wait(within(patience)); !errors.Is(err, ErrAgain) {
		t.Fatalf("the old attempt ends with %v", err)
	}
	if !unheard() || len(x.heard) > 0 || len(old.heard) > 0 {
		t.Errorf("what the old actor sent was acknowledged: %v; heard besides: %d and %d", !unheard(), len(x.heard), len(old.heard))
	}
	for _, n := range []*cast{x.first, x.second, old.second} {
		if c := n.Troubles(); len(c) > 0 {
			t.Errorf("%s: trouble %v", n.Name(), c)
		}
	}
	old.member.Leave(nil)
	if err := x.end(t, func(c *Coordinator) error { return c.Again(within(patience)) }); !errors.Is(err, ErrAgain) {
		t.Errorf("an attempt ends with %v when another begins", err)
	}
}

// TestEndedProcessIsFoundByItsOrigin: a process keeps the number that it was started with, whatever its number is in the
// attempt; and one that has ended is not the node that has that number now.
func TestEndedProcessIsFoundByItsOrigin(t *testing.T) {
	lines := &lines{}
	_, c, first := opening(t, Coordination{Progress: lines.add})
	var members []*Member
	for _, h := range []Hello{{Node: 1, Origin: 2, Version: "v1"}, {Node: 2, Origin: 1, Version: "v1"}} {
		m, err := Join(within(patience), startServer(t, ServerOptions{Join: first.Addr()}), h)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Leave(nil)
		members = append(members, m)
	}
	c.Ended(2, errors.New("signal: killed"))
	if got := lines.get(); !slices.Contains(got, "node 1 is gone before the run has begun: signal: killed") {
		t.Errorf("told %q", got)
	}
	if err := members[0].Wait(within(patience)); !errors.Is(err, ErrFenced) {
		t.Errorf("the node that is held for dead hears %v", err)
	}
	members[1].mu.Lock()
	defer members[1].mu.Unlock()
	if members[1].over || c.Left(1) || c.Left(2) {
		t.Error("the other node is held for dead, or one of them for one that has left")
	}
}

// TestRefusedNodeIsNamed: people can find the node that is refused, and are told once.
func TestRefusedNodeIsNamed(t *testing.T) {
	cast, c, _ := opening(t, Coordination{})
	for _, test := range []struct {
		hello *messages.Hello
		says  string
	}{
		{&messages.Hello{Node: -1}, "refused a node: its version"},
		{&messages.Hello{Node: 2, Address: "10.0.0.2:7400"}, "refused node 2 at 10.0.0.2:7400: its version"},
		{&messages.Hello{Node: 1, Origin: 2}, "refused node 2: its version"},
		{&messages.Hello{Node: 1, Name: "b"}, "refused b: its version"},
	} {
		for range 3 {
			if w := c.welcome("s", test.hello, time.Now()); w.GetRefusal() == "" || w.Room != messages.Room_ROOM_NEVER {
				t.Errorf("%v: %v", test.hello, w)
			}
		}
		told := 0
		for _, line := range cast.lines.get() {
			if len(line) > len(test.says) && line[:len(test.says)] == test.says {
				told++
			}
		}
		if told != 1 {
			t.Errorf("%q is told %d times", test.says, told)
		}
	}
}

// TestSilentWhileGathering: while nodes gather, the number of a node that is known to be gone is free, and one that may come
// back ends the attempt.
func TestSilentWhileGathering(t *testing.T) {
	for _, c := range []struct {
		err error
		new bool
	}{{connectionRefused(t), false}, {errors.New("i/o timeout"), true}, {nil, true}} {
		_, x, first := opening(t, Coordination{})
		s := startServer(t, ServerOptions{Join: first.Addr()})
		m, err := Join(within(patience), s, Hello{Node: 1, Version: "v1"})
		if err != nil {
			t.Fatal(err)
		}
		x.mu.Lock()
		tell := x.silent(1, c.err)
		x.mu.Unlock()
		tell()
		err = x.Gather(within(300 * time.Millisecond))
		if got := errors.Is(err, ErrLost); got != c.new {
			t.Errorf("%v: gathering ends with %v", c.err, err)
		}
		m.Leave(nil)
	}
}

// TestOverOrOutOfReach: a node that asks for a place ends at once when nobody listens where the run was, and only when its time
// is over when nothing answers there.
func TestOverOrOutOfReach(t *testing.T) {
	first := startServer(t, ServerOptions{})
	s := startServer(t, ServerOptions{Join: first.Addr()})
	silent, err := net.Listen("tcp", "127.0.0.1:0") // as good as one out of reach
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	first.Close()
	if _, err := Join(within(patience), s, Hello{Node: 1, Version: "v1"}); !errors.Is(err, ErrOver) {
		t.Errorf("nobody listens: %v", err)
	}
	other := startServer(t, ServerOptions{Token: "small.other"})
	s.options.Join = other.Addr()
	if _, err := Join(within(patience), s, Hello{Node: 1, Version: "v1"}); !errors.Is(err, ErrOver) || !strings.Contains(err.Error(), "somebody else listens") {
		t.Errorf("another run listens: %v", err)
	}
	s.options.Join = silent.Addr().String()
	if _, err := Join(within(300*time.Millisecond), s, Hello{Node: 1, Version: "v1"}); errors.Is(err, ErrOver) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing answers: %v", err)
	}
}

// TestShortRun: a run that is over in good order before a node has heard of its beginning is no failure of that node.
func TestShortRun(t *testing.T) {
	_, _, first := opening(t, Coordination{})
	s := startServer(t, ServerOptions{Join: first.Addr()})
	m, err := Join(within(patience), s, Hello{Node: 1, Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	n := newCast(t, Options{Index: 1, Placement: twoNodes(), Server: s})
	m.hear(&messages.Control{Session: m.coordinator, Body: &messages.Control_Beat{Beat: &messages.Beat{Phase: messages.Phase_PHASE_STOPPING}}}, nil)
	if err := errors.Join(m.Ready(within(patience), n.Node, "f"), m.Wait(within(patience))); err != nil {
		t.Error(err)
	}
	m.Leave(nil)
}

// connectionRefused is what comes of a connection to nobody.
func connectionRefused(t testing.TB) error {
	s := startServer(t, ServerOptions{})
	address := s.Addr()
	other := startServer(t, ServerOptions{})
	s.Close()
	return other.answers(within(patience), address)
}
