package actors

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// The tests of this file are about what NATS does to those who trust it.

// slowDevice lets a test hold up the goroutine on which NATS hands over messages.
type slowDevice struct {
	fakeDevice
	open chan struct{}
}

func (d slowDevice) Alloc(a *device.Account, l device.Label, dt device.DType, n int) (device.Slice, error) {
	<-d.open
	return d.fakeDevice.Alloc(a, l, dt, n)
}

// TestPausedReceiverLosesNothing: NATS drops what a subscriber leaves lying for too long, from 64 MB on,
// and tells nobody who sent it. The window keeps it from coming to that.
func TestPausedReceiverLosesNothing(t *testing.T) {
	const n, floats = 70, 1 << 18 // 70 MiB
	want := make([]byte, 4*floats)
	fill(want, 9)
	open := make(chan struct{})
	held := device.NewAccount("sent", 0)
	got := make(chan int, n)
	x := gatherCompany(t, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
			c.play(stage0, func(machine.Event) []machine.Effect {
				p := tensor(t, held, floats, 9)
				var out []machine.Effect
				for i := range n {
					out = append(out, machine.Send{Message: &machine.Message{Name: named(stage0, stage1, 1, activation(i)), Payload: p}})
				}
				return append(out, machine.Drop{Payload: p})
			}, nil)
			return
		}
		m := &fakeMachine{id: stage1, handle: func(e machine.Event) []machine.Effect {
			m := e.(machine.Arrived).Message
			if string(m.Payload.(machine.Tensor).HostBytes()) != string(want) {
				panic("the bytes differ")
			}
			got <- m.Name.Value.Lo
			return []machine.Effect{machine.Drop{Payload: m.Payload}}
		}}
		c.spawnOn(slowDevice{open: open}, m, nil)
	})
	if err := x.nodes[0].Send(stage0, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	sub := x.nodes[1].transport.ears[stage1].sub
	eventually(t, "the window is full", func() bool {
		_, bytes, err := sub.Pending()
		return err == nil && bytes >= 3*chunkBytes
	})
	// It stays near that, although 70 MiB want to be sent. Chunks that were sent again count as well.
	const most = 4 << 20
	for range 20 {
		if _, bytes, err := sub.Pending(); err != nil || bytes > most {
			t.Fatalf("%d bytes are pending, should be %d at most: %v", bytes, most, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	close(open)
	for i := range n {
		if got := receive(t, got, "message"); got != i {
			t.Fatalf("message %d, want %d", got, i)
		}
	}
	eventually(t, "all is acknowledged", func() bool { return held.Held() == 0 })
	if dropped, err := sub.Dropped(); err != nil || dropped != 0 {
		t.Fatalf("NATS dropped %d messages: %v", dropped, err)
	}
}

// proxy passes TCP on, and can cut all that goes through it.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	conns map[net.Conn]bool
	shut  bool
	all   sync.WaitGroup
}

func newProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.all.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) accept() {
	for {
		a, err := p.listener.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", p.target)
		if err != nil {
			a.Close()
			continue
		}
		p.mu.Lock()
		p.conns[a], p.conns[b] = true, true
		shut := p.shut
		p.mu.Unlock()
		if shut {
			p.cut()
		}
		for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
			p.all.Go(func() {
				io.Copy(pair[0], pair[1]) // until one of them is closed
				pair[0].Close()
				pair[1].Close()
			})
		}
	}
}

// cut closes all connections, whatever is on its way, and returns how many there were.
func (p *proxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.conns)
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
	return n
}

func (p *proxy) close() {
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
	p.listener.Close()
	p.cut()
	p.all.Wait()
}

// TestRouteCutLosesNothing: what is on a route when it breaks is gone, and core NATS says nothing. The
// links send it again.
func TestRouteCutLosesNothing(t *testing.T) {
	const n, floats = 60, 50000 // 200 kB each
	var wants [n][]byte
	for i := range wants {
		wants[i] = make([]byte, 4*floats)
		fill(wants[i], byte(i))
	}
	held := device.NewAccount("sent", 0)
	got := make(chan machine.Message, 2*n)
	talk := func(self, peer plan.ActorID) func(machine.Event) []machine.Effect {
		return func(e machine.Event) []machine.Effect {
			switch e := e.(type) {
			case machine.Begin:
				var out []machine.Effect
				for i := range n {
					p := tensor(t, held, floats, byte(i))
					out = append(out, machine.Send{Message: &machine.Message{Name: named(self, peer, 1, activation(i)), Payload: p}}, machine.Drop{Payload: p})
				}
				return out
			case machine.Arrived:
				got <- e.Message
			}
			return nil
		}
	}
	var cutter *proxy
	x := gatherThrough(t, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
			c.play(stage0, talk(stage0, stage1), nil)
		} else {
			c.play(stage1, talk(stage1, stage0), nil)
		}
	}, func(address string) string {
		cutter = newProxy(t, address)
		return cutter.listener.Addr().String()
	}, Coordination{Suspect: 500}) // the servers take a second until they find each other again
	for i, id := range []plan.ActorID{stage0, stage1} {
		if err := x.nodes[i].Send(id, machine.Begin{}); err != nil {
			t.Fatal(err)
		}
	}
	next := map[plan.ActorID]int{}
	for k := range 2 * n {
		if k == 7 {
			if cutter.cut() == 0 {
				t.Fatal("there was no route to cut")
			}
		}
		m := receive(t, got, "message")
		if want := next[m.Name.To]; m.Name.Value.Lo != want {
			t.Fatalf("%s got message %d, want %d", m.Name.To, m.Name.Value.Lo, want)
		}
		if i := m.Name.Value.Lo; string(m.Payload.(machine.Tensor).HostBytes()) != string(wants[i]) {
			t.Fatalf("the bytes of message %d differ", i)
		}
		m.Payload.Release()
		next[m.Name.To]++
	}
	eventually(t, "all is acknowledged", func() bool { return held.Held() == 0 })
}

// TestControlHasItsOwnConnections: heartbeats share no connection with tensors, neither from node to
// server nor from server to server. See BenchmarkControlBesideData for what that is worth.
func TestControlHasItsOwnConnections(t *testing.T) {
	x := gatherCompany(t, 3, twoNodes(), func(node int, c *cast) {
		switch node {
		case 0:
			c.play(plan.Trainer, discard, nil)
			c.play(stage0, discard, nil)
		case 1:
			c.play(stage1, discard, nil)
		}
	})
	for i, s := range x.servers {
		eventually(t, "each of two others has routes of its own for both accounts", func() bool {
			routes, err := s.nats.Routez(nil)
			if err != nil {
				t.Fatal(err)
			}
			own := map[string]int{}
			for _, r := range routes.Routes {
				own[r.Account]++
			}
			return own[controlAccount] == 2 && own[dataAccount] == 2
		})
		if n := s.nats.NumClients(); n != 2 {
			t.Fatalf("server %d has %d clients, want 2", i, n)
		}
	}
}

// TestNobodyListens: a question to a subject without a listener is answered at once, not by a timeout.
func TestNobodyListens(t *testing.T) {
	s := startServer(t, ServerOptions{})
	c := newCast(t, Options{Placement: place(stage0, stage1), Server: s})
	c.play(stage0, discard, nil)
	if _, err := c.transport.data.Request(c.transport.subject(stage1, 0), nil, patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Fatalf("error %v", err)
	}
}

// TestRandomBytesOnASubject: what is not a frame is refused, counted and logged once, and disturbs nothing.
func TestRandomBytesOnASubject(t *testing.T) {
	got := make(chan machine.Message, 10)
	x := gatherCompany(t, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
			c.play(stage0, func(machine.Event) []machine.Effect {
				return []machine.Effect{machine.Send{Message: &machine.Message{Name: named(stage0, stage1, 1, activation(0)), Payload: machine.Blob("x")}}}
			}, nil)
			return
		}
		c.play(stage1, func(e machine.Event) []machine.Effect {
			got <- e.(machine.Arrived).Message
			return nil
		}, nil)
	})
	stranger, victim := x.nodes[0].transport, x.nodes[1]
	const n = 100
	garbage := make([]byte, 1000)
	for i := range n {
		fill(garbage, byte(i))
		garbage[0] = 0xee // no version of frames
		if err := stranger.data.Publish(stranger.subject(stage1, 0), garbage[:10*i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.nodes[0].Send(stage0, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, got, "message"); string(m.Payload.(machine.Blob)) != "x" {
		t.Fatalf("message %+v", m)
	}
	c := victim.Troubles()
	if c["refused frame: unknown version"] != n-1 || c["refused frame: too short"] != 1 || len(c) != 2 {
		t.Fatalf("counts %v", c)
	}
	logged := 0
	for _, l := range victim.lines.get() {
		if strings.Contains(l, "refused frame") && strings.Contains(l, string(stage1)) {
			logged++
		}
	}
	if logged != 2 {
		t.Fatalf("%d lines about it, want one of each kind: %q", logged, victim.lines.get())
	}
}
