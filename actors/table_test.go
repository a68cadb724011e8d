package actors

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

func TestDirectory(t *testing.T) {
	round := plan.Round{Step: 3, Phase: plan.TrainPhase}
	d := newDirectory()
	d.place(stage0, 1)
	for _, test := range []struct {
		name           string
		l              life
		news, announce bool
		want           life
	}{
		{"the same", life{node: 1}, false, false, life{node: 1}},
		{"moved", life{node: 2, incarnation: 1}, true, false, life{node: 2, incarnation: 1}},
		{"an old life", life{node: 1}, false, false, life{node: 2, incarnation: 1}},
		{"announced", life{2, 1, round, true}, true, true, life{2, 1, round, true}},
		{"announced again", life{2, 1, round, true}, false, false, life{2, 1, round, true}},
		{"nowhere", life{node: nowhere, incarnation: 1}, true, false, life{nowhere, 1, round, true}},
		{"a new life", life{node: 3, incarnation: 2}, true, false, life{node: 3, incarnation: 2}},
	} {
		news, announce := d.learn(stage0, test.l)
		if got, _ := d.get(stage0); news != test.news || announce != test.announce || got != test.want {
			t.Errorf("%s: news %v, announce %v, %+v", test.name, news, announce, got)
		}
	}
	if news, _ := d.learn("stage.p9.d9", life{incarnation: 1}); news {
		t.Error("an actor that is not in the placement is learned of")
	}
	if s := d.strand(3); len(s) != 1 || len(d.table(1).Lives) != 1 || d.table(1).Lives[0].Node != nowhere {
		t.Errorf("stranded %v, table %v", s, d.table(1))
	}
}

// TestMove: a new life of an actor of another node begins there, hears of the lives of others and is sent what is for
// it; the old one ends. When the node is lost, nobody has the actor, and what is for it vanishes.
func TestMove(t *testing.T) {
	type heard struct {
		incarnation int
		event       machine.Event
	}
	got := make(chan heard, 10)
	exits := make(chan plan.ActorID, 10)
	lost := make(chan string, 10)
	hear := func(incarnation int) func(machine.Event) []machine.Effect {
		return func(e machine.Event) []machine.Effect {
			got <- heard{incarnation, e}
			return nil
		}
	}
	x := gatherThrough(t, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
			c.play(stage0, func(e machine.Event) []machine.Effect {
				if _, ok := e.(machine.Begin); !ok {
					return nil
				}
				return []machine.Effect{machine.Send{Message: &machine.Message{Name: named(stage0, stage1, 1, activation(0)), Payload: machine.Blob("x")}}}
			}, nil)
			return
		}
		c.play(stage1, hear(0), nil)
		c.options.Spawn = func(id plan.ActorID, incarnation int) (Actor, error) {
			if incarnation == 2 {
				return Actor{}, errors.New("no room")
			}
			s := newFakeStream()
			c.streams = append(c.streams, s)
			return Actor{
				Machine: &fakeMachine{id: id, handle: hear(incarnation)}, Executor: &fakeExecutor{},
				Device: fakeDevice{}, Account: device.NewAccount(string(id), 0), Stream: s, Incarnation: incarnation,
			}, nil
		}
		c.options.Exit = func(id plan.ActorID, _ bool) { exits <- id }
	}, func(address string) string { return address }, Coordination{Suspect: 50, Lost: func(_ int, name, cause string) { lost <- name + ": " + cause }})
	failed := make(chan machine.Failed, 10)
	x.nodes[0].options.Observer.Failed = func(f machine.Failed) { failed <- f }

	if err := x.coordinator.Move(within(patience), stage1, 1, 1); err != nil {
		t.Fatal(err)
	}
	if id := receive(t, exits, "exit"); id != stage1 {
		t.Fatalf("%s has ended", id)
	}
	if err := x.nodes[0].Send(stage0, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	h := receive(t, got, "message")
	if a, ok := h.event.(machine.Arrived); !ok || h.incarnation != 1 || a.Message.Name.From != stage0 || a.Message.Sum == 0 {
		t.Fatalf("heard %+v", h)
	}
	p := machine.PeerIs{Peer: stage1, Incarnation: 1, Round: plan.Round{Step: 1}}
	x.nodes[0].announce(p)
	if h := receive(t, got, "announcement"); h.event != machine.Event(p) {
		t.Fatalf("heard %+v", h)
	}

	// One that cannot be made is a failure of that life.
	if err := x.coordinator.Move(within(200*time.Millisecond), stage1, 2, 1); err == nil {
		t.Fatal("it lives")
	}
	if f := receive(t, failed, "failure"); f.Actor != stage1 || f.Incarnation != 2 || !strings.Contains(f.Cause, "no room") {
		t.Fatalf("failure %+v", f)
	}

	x.members[0].kill()
	x.members = nil
	if text := receive(t, lost, "loss"); !strings.Contains(text, "node 1: no heartbeat for") {
		t.Fatalf("lost %q", text)
	}
	if l, _ := x.nodes[0].directory.get(stage1); l.node != nowhere {
		t.Fatalf("%+v", l)
	}
	if err := x.nodes[0].Send(stage1, machine.Arrived{Message: machine.Message{Name: named(stage0, stage1, 1, activation(1))}}); err != nil {
		t.Fatal(err)
	}
}

func TestMoveThatCannotBe(t *testing.T) {
	x := gatherCompany(t, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
			c.play(stage0, discard, nil)
		} else {
			c.play(stage1, discard, nil)
		}
	})
	for _, test := range []struct {
		id                plan.ActorID
		incarnation, node int
		says              string
	}{
		{"stage.p9.d9", 1, 1, "not in the placement"},
		{stage1, 0, 1, "cannot begin its incarnation 0"},
		{stage1, 1, 7, "node 7, which is not there"},
	} {
		if err := x.coordinator.Move(within(patience), test.id, test.incarnation, test.node); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%+v: error %v", test, err)
		}
	}
}
