package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

func TestValve(t *testing.T) {
	for _, c := range []struct {
		self int
		cuts [][]int
		shut []int // of 0 to 3
	}{
		{0, nil, nil},
		{1, [][]int{{1}}, []int{0, 2, 3}},
		{1, [][]int{{0}}, []int{0}},
		{1, [][]int{{1, 2}}, []int{0, 3}},
		{0, [][]int{{1, 2}}, []int{1, 2}},
		{0, [][]int{{0, 3}}, []int{1, 2}},
		{0, [][]int{{1}, {3}}, []int{1, 3}},
		{nobody, [][]int{{1}}, nil}, // one that has not joined is asked nothing and asks nobody
	} {
		v := NewValve()
		v.is(c.self)
		for _, nodes := range c.cuts {
			v.Cut(nodes, patience)
		}
		v.Cut([]int{0, 1}, 0) // is over
		for node := range 4 {
			if v.shut(node) != slices.Contains(c.shut, node) {
				t.Errorf("%+v: node %d: shut is %v", c, node, v.shut(node))
			}
		}
	}
	if open := (*Valve)(nil); open.shut(1) || open.pass(context.Background(), 1) != nil {
		t.Error("no valve is shut")
	}
}

// TestValveLosesWhatIsSent: while two nodes are cut off, nothing that one sends comes to the other, also not by a question that
// asks whether it is there, which waits for its answer. Afterwards all of it has come, once.
func TestValveLosesWhatIsSent(t *testing.T) {
	got := make(chan machine.Name, 100)
	held := device.NewAccount("sent", 0)
	x := gatherCompany(t, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
			c.play(stage0, discard, nil)
			return
		}
		c.play(stage1, func(e machine.Event) []machine.Effect {
			if a, ok := e.(machine.Arrived); ok {
				got <- a.Message.Name
			}
			return machine.Discard(e)
		}, nil)
	})
	resent := func() uint64 {
		all := x.nodes[0].Stats()
		return all[slices.IndexFunc(all, func(s Stats) bool { return s.Actor == stage0 })].Resent
	}
	for _, end := range []int{0, 1} { // at which the cut is seen
		before := resent()
		x.servers[end].Valve().Cut([]int{1}, time.Second)
		for i := range 10 {
			p := tensor(t, held, 1000, byte(i))
			if err := x.nodes[0].Send(stage1, machine.Arrived{Message: machine.Message{Name: named(stage0, stage1, int64(end), activation(i)), Payload: p}}); err != nil {
				t.Fatal(err)
			}
		}
		short := newDoubts(x.servers[0], 50*time.Millisecond)
		told := make(chan error, 1)
		if end == 0 {
			short.ask(new(doubt), 1, x.servers[1].Addr(), time.Second, func(err error) { told <- err })
			if err := receive(t, told, "answer"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a question into a cut: %v", err)
			}
		}
		short.end()
		eventually(t, "what was lost is sent again", func() bool { return resent() > before })
		if n := len(got); n > 0 && x.servers[end].Valve().shut(1-end) {
			t.Fatalf("%d messages came through the cut", n)
		}
		for i := range 10 {
			if n := receive(t, got, "message"); n != named(stage0, stage1, int64(end), activation(i)) {
				t.Fatalf("message %d is %v", i, n)
			}
		}
		long := newDoubts(x.servers[0], patience)
		x.servers[0].Valve().Cut([]int{0}, 100*time.Millisecond)
		long.ask(new(doubt), 1, x.servers[1].Addr(), time.Second, func(err error) { told <- err })
		if err := receive(t, told, "answer"); err != nil {
			t.Errorf("a cut that ends before the patience does: %v", err)
		}
		long.end()
	}
	if len(got) > 0 {
		t.Error("something came twice")
	}
}

// book is a Referee, and Faults, that take down what they are asked and told.
type book struct {
	mu      sync.Mutex
	asked   []string
	strikes Strikes
	news    chan struct{}
	told    chan Strikes
}

func (b *book) Reached(session string, fault int, count uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, fmt.Sprint(fault, " ", count))
	return fault == 3
}

func (b *book) Strikes() Strikes {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.strikes
}

func (b *book) News() <-chan struct{}                      { return b.news }
func (b *book) Op(plan.ActorID, plan.Round, *plan.Op) Harm { return Harm{} }
func (b *book) Message(machine.Name) MessageHarm           { return MessageHarm{} }
func (b *book) Struck(s Strikes) {
	select {
	case b.told <- s:
	default:
	}
}

// TestReferee: a member asks and is told, unless it is cut off or given up; the strikes so far come with the welcome, and those
// after it with a beat.
func TestReferee(t *testing.T) {
	b := &book{news: make(chan struct{}, 1), told: make(chan Strikes, 100), strikes: Strikes{Forgotten: 2, Faults: []int{5}}}
	_, c, first := opening(t, Coordination{Referee: b})
	s := startServer(t, ServerOptions{Join: first.Addr()})
	m, err := Join(within(patience), s, Hello{Node: 1, Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Leave(nil)
	if n := m.Welcome().Struck; n != 3 {
		t.Errorf("welcomed after %d strikes, want 3", n)
	}
	for i, fault := range []int{3, 4} {
		if strikes, err := m.Reached(fault, uint64(i)); err != nil || strikes != (fault == 3) {
			t.Errorf("fault %d: %v, %v", fault, strikes, err)
		}
	}
	n := newCast(t, Options{Index: 1, Placement: twoNodes(), Server: s, Faults: b})
	n.play(stage1, discard, nil)
	ready, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Ready(ready, n.Node, "f") }() // its run never begins
	defer func() { stop(); <-done }()
	b.mu.Lock()
	b.strikes = Strikes{Forgotten: 2, Faults: []int{5, 3}}
	b.mu.Unlock()
	b.news <- struct{}{}
	eventually(t, "the strike is told", func() bool { return slices.Equal(receive(t, b.told, "strikes").Faults, []int{5, 3}) })
	first.Valve().Cut([]int{1}, refereeWait+time.Second)
	if _, err := m.Reached(3, 2); err == nil {
		t.Error("an answer through a cut")
	}
	if err := first.Valve().pass(within(patience), 1); err != nil { // it is to be heard when it leaves
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.asked, []string{"3 0", "4 1"}) {
		t.Errorf("asked: %v", b.asked)
	}
	if c.member(1, "another") || c.member(2, m.control.session) {
		t.Error("a stranger is a member")
	}
}

// TestHarm: an actor that does nothing is killed; one that has moved away is left alone.
func TestHarm(t *testing.T) {
	told := make(chan machine.Failed, 1)
	c := newCast(t, Options{Placement: place(plan.Trainer, stage0), Faults: &book{}, Observer: Observer{Failed: func(f machine.Failed) { told <- f }}})
	c.play(stage0, discard, nil)
	if c.Harm(stage1, Harm{Kill: true}) || !c.Harm(stage0, Harm{Kill: true}) {
		t.Error("who lives here is not known")
	}
	if f := receive(t, told, "failure"); f.Actor != stage0 || f.Cause != errKilled.Error() {
		t.Errorf("told %+v", f)
	}
}
