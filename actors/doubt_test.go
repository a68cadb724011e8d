package actors

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/troupe-train/troupe/plan"
)

// TestCutIsNoLoss: a route that is cut, and takes longer to come back than heartbeats may be missing, costs no node, as long
// as the servers answer; not in the eyes of the coordinator, and not in those of the node.
func TestCutIsNoLoss(t *testing.T) {
	lost := make(chan string, 10)
	var cutter *proxy
	x := gatherThrough(t, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
			c.play(stage0, discard, nil)
		} else {
			c.play(stage1, discard, nil)
		}
	}, func(address string) string {
		cutter = newProxy(t, address)
		return cutter.listener.Addr().String()
	}, Coordination{Suspect: 25, Lost: func(_ int, name, cause string) { lost <- name + ": " + cause }}) // half a second; a route takes a whole one
	heard := func() (member, coordinator time.Time, doubted bool) {
		m := x.members[0]
		m.mu.Lock()
		member = m.silence.heard[0]
		m.mu.Unlock()
		c := x.coordinator
		c.mu.Lock()
		defer c.mu.Unlock()
		return member, c.silence.heard[1], c.members[1].doubt.open()
	}
	if cutter.cut() == 0 {
		t.Fatal("there was no route to cut")
	}
	eventually(t, "the coordinator doubts", func() bool { _, _, d := heard(); return d })
	eventually(t, "both hear each other again", func() bool {
		a, b, d := heard()
		return !d && time.Since(a) < 100*time.Millisecond && time.Since(b) < 100*time.Millisecond
	})
	select {
	case text := <-lost:
		t.Fatal(text)
	default:
	}
	x.members[0].mu.Lock()
	defer x.members[0].mu.Unlock()
	if x.members[0].over {
		t.Fatal(x.members[0].ended)
	}
}

// TestDoubts: an answer is believed a few times in a row; nobody's refusal, that of another run and silence are none.
func TestDoubts(t *testing.T) {
	s := startServer(t, ServerOptions{})
	other := startServer(t, ServerOptions{Token: "another"})
	gone := startServer(t, ServerOptions{})
	gone.Close()
	x := newDoubts(s, patience)
	defer x.end()
	var d doubt
	told := make(chan error, 1)
	tell := func(err error) { told <- err }
	for i := range mostDoubts {
		if !x.ask(&d, 1, s.Addr(), time.Second, tell) || !d.open() {
			t.Fatalf("question %d is not asked", i)
		}
		if err := receive(t, told, "answer"); err != nil {
			t.Fatal(err)
		}
	}
	if x.ask(&d, 1, s.Addr(), time.Second, tell) || d.silent != (mostDoubts+1)*time.Second {
		t.Fatalf("it is asked for ever: %+v", d)
	}
	for _, address := range []string{other.Addr(), gone.Addr(), newTalker(t, "HTTP/1.1 400 Bad Request\r\n")} {
		d = doubt{}
		if !x.ask(&d, 1, address, time.Second, tell) {
			t.Fatal("not asked")
		}
		if err := receive(t, told, "answer"); err == nil {
			t.Errorf("%s answers", address)
		}
	}
	d = doubt{}
	if x.ask(&d, 1, usable("0.0.0.0:7400"), time.Second, tell) || x.ask(&d, 1, usable("[::]:7400"), time.Second, tell) {
		t.Error("nowhere is asked")
	}
	if usable("10.0.0.1:7400") == "" {
		t.Error("a good address is not used")
	}
	// One that listens and says nothing, as a stopped process does, has its time.
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	short := newDoubts(s, 50*time.Millisecond)
	defer short.end()
	d = doubt{}
	short.ask(&d, 1, mute.Addr().String(), time.Second, tell)
	if err := receive(t, told, "answer"); err == nil || errors.Is(err, errStranger) {
		t.Error(fmt.Sprint("silence is an answer: ", err))
	}
}
