package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

const testToken = "a token of the tests"

func startServer(t testing.TB, o ServerOptions) *Server {
	t.Helper()
	if o.Job == "" {
		o.Job = "test"
	}
	if o.Token == "" {
		o.Token = testToken
	}
	if o.Valve == nil {
		o.Valve = NewValve()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := StartServer(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// company is a run over several nodes in one process.
type company struct {
	t           testing.TB
	servers     []*Server
	nodes       []*cast
	coordinator *Coordinator
	members     []*Member
	once        sync.Once
}

// gatherCompany starts nodes that run the actors of a placement, lets setup spawn them, and returns when
// all are ready.
func gatherCompany(t testing.TB, nodes int, placement []plan.Actor, setup func(node int, c *cast)) *company {
	t.Helper()
	return gatherThrough(t, nodes, placement, setup, func(address string) string { return address }, Coordination{Suspect: 50})
}

// gatherThrough lets the nodes join under another address than that of the first server. Of the coordination, it
// fills in what is the same everywhere.
func gatherThrough(t testing.TB, nodes int, placement []plan.Actor, setup func(node int, c *cast), way func(string) string, o Coordination) *company {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	x := &company{t: t}
	first := startServer(t, ServerOptions{})
	x.servers = append(x.servers, first)
	n0 := newCast(t, Options{Placement: placement, Server: first})
	x.nodes = append(x.nodes, n0)
	setup(0, n0)
	o.Nodes, o.Version, o.Heartbeat, o.Progress = nodes, "v1", 20*time.Millisecond, n0.lines.add
	o.Welcome = Welcome{Job: []byte("job"), Options: map[string]string{"resume": "true"}, Fingerprint: "f"}
	c, err := n0.Coordinate(o)
	if err != nil {
		t.Fatal(err)
	}
	x.coordinator = c
	ready := make(chan error, nodes)
	address := way(first.Addr())
	for i := 1; i < nodes; i++ {
		s := startServer(t, ServerOptions{Join: address})
		x.servers = append(x.servers, s)
		m, err := Join(ctx, s, Hello{Node: i, Version: "v1"})
		if err != nil {
			t.Fatal(err)
		}
		x.members = append(x.members, m)
		n := newCast(t, Options{Index: m.Index(), Placement: m.Welcome().Placement, Server: s})
		x.nodes = append(x.nodes, n)
		setup(i, n)
		go func() { ready <- m.Ready(ctx, n.Node, "f") }()
	}
	if err := c.Gather(ctx); err != nil {
		t.Fatal(err)
	}
	for range x.members {
		if err := <-ready; err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(x.end) // before nodes and servers close
	return x
}

// end ends the run in good order.
func (x *company) end() {
	x.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var all sync.WaitGroup
		for _, m := range x.members {
			all.Go(func() { m.Leave(m.Wait(ctx)) })
		}
		if err := x.coordinator.Shutdown(ctx, ""); err != nil {
			x.t.Errorf("shutdown: %v", err)
		}
		all.Wait()
	})
}

func twoNodes() []plan.Actor {
	return []plan.Actor{{ID: plan.Trainer}, {ID: stage0}, {ID: stage1, Node: 1}}
}

// TestTwoNodes sends payloads of all kinds and sizes in both directions between two servers.
func TestTwoNodes(t *testing.T) {
	sizes := []int{0, 1, 1000, chunkBytes / 4, chunkBytes/4 + 1, 3*window/4 + 7}
	type arrival struct {
		at plan.ActorID
		m  machine.Message
	}
	got := make(chan arrival, 100)
	held := device.NewAccount("sent", 0)
	var accounts []*device.Account
	handle := func(self, peer plan.ActorID) func(machine.Event) []machine.Effect {
		return func(e machine.Event) []machine.Effect {
			switch e := e.(type) {
			case machine.Arrived:
				got <- arrival{self, e.Message}
			case machine.Begin:
				var out []machine.Effect
				send := func(i int, p machine.Payload) {
					out = append(out, machine.Send{Message: &machine.Message{Name: named(self, peer, 2, activation(i)), Payload: p}})
					if p != nil {
						out = append(out, machine.Drop{Payload: p})
					}
				}
				for i, n := range sizes {
					send(i, tensor(t, held, n, byte(i)))
				}
				blob := make([]byte, 2*chunkBytes+11)
				fill(blob, 77)
				send(100, machine.Blob(blob))
				send(101, nil)
				return out
			}
			return nil
		}
	}
	x := gatherCompany(t, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
			accounts = append(accounts, c.play(stage0, handle(stage0, stage1), nil))
		} else {
			accounts = append(accounts, c.play(stage1, handle(stage1, stage0), nil))
		}
	})
	for i, id := range []plan.ActorID{stage0, stage1} {
		if err := x.nodes[i].Send(id, machine.Begin{}); err != nil {
			t.Fatal(err)
		}
	}
	next := map[plan.ActorID]int{}
	for range 2 * (len(sizes) + 2) {
		a := receive(t, got, "message")
		i := next[a.at]
		next[a.at]++
		if i >= len(sizes) {
			i += 100 - len(sizes)
		}
		from := stage0
		if a.at == stage0 {
			from = stage1
		}
		if want := named(from, a.at, 2, activation(i)); a.m.Name != want {
			t.Fatalf("message %v came to %s, want %v", a.m.Name, a.at, want)
		}
		switch p := a.m.Payload.(type) {
		case machine.Tensor:
			want := make([]byte, sizes[i]*4)
			fill(want, byte(i))
			if string(p.HostBytes()) != string(want) || p.Type != device.F32 || p.Len != sizes[i] {
				t.Fatalf("tensor %d differs", i)
			}
			p.Release()
		case machine.Blob:
			want := make([]byte, 2*chunkBytes+11)
			fill(want, 77)
			if i != 100 || string(p) != string(want) {
				t.Fatal("the blob differs")
			}
		case nil:
			if i != 101 {
				t.Fatalf("message %d lost its payload", i)
			}
		}
	}
	eventually(t, "the links give back what was sent", func() bool { return held.Held() == 0 })
	for _, a := range accounts {
		if a.Held() != 0 || a.Peak() == 0 {
			t.Fatalf("received messages: %d bytes held, peak %d", a.Held(), a.Peak())
		}
	}
	for _, n := range x.nodes {
		if c := n.Troubles(); len(c) > 0 {
			t.Fatalf("trouble: %v", c)
		}
	}
}

func TestFailureOnAnotherNodeReachesTheTrainer(t *testing.T) {
	told := make(chan machine.Failed, 1)
	x := gatherCompany(t, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, func(e machine.Event) []machine.Effect {
				if f, ok := e.(machine.Failed); ok {
					told <- f
				}
				return nil
			}, nil)
			c.play(stage0, discard, nil)
			return
		}
		c.play(stage1, func(machine.Event) []machine.Effect {
			return []machine.Effect{machine.Fail{Round: plan.Round{Step: 5, Phase: plan.TrainPhase}, Op: "forward", Cause: errors.New("burnt")}}
		}, nil)
	})
	if err := x.nodes[1].Send(stage1, machine.Begin{}); err != nil {
		t.Fatal(err)
	}
	f := receive(t, told, "failure")
	if want := (machine.Failed{Actor: stage1, Node: "node 1", Round: plan.Round{Step: 5, Phase: plan.TrainPhase}, Op: "forward", Cause: "burnt"}); f != want {
		t.Fatalf("told %+v, want %+v", f, want)
	}
}

func TestFourNodesFormAMesh(t *testing.T) {
	const nodes = 4
	placement := []plan.Actor{{ID: plan.Trainer}}
	for i := range nodes {
		placement = append(placement, plan.Actor{ID: plan.StageID(i, 0), Node: i})
	}
	var mu sync.Mutex
	heard := map[string]int{}
	x := gatherCompany(t, nodes, placement, func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
		}
		self := plan.StageID(node, 0)
		c.play(self, func(e machine.Event) []machine.Effect {
			var out []machine.Effect
			switch e := e.(type) {
			case machine.Begin:
				for i := range nodes {
					if to := plan.StageID(i, 0); to != self {
						out = append(out, machine.Send{Message: &machine.Message{Name: named(self, to, 0, activation(0)), Payload: machine.Blob("x")}})
					}
				}
			case machine.Arrived:
				mu.Lock()
				heard[fmt.Sprintf("%s>%s", e.Message.Name.From, self)]++
				mu.Unlock()
			}
			return out
		}, nil)
	})
	for i, n := range x.nodes {
		if err := n.Send(plan.StageID(i, 0), machine.Begin{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "everybody hears everybody", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(heard) == nodes*(nodes-1)
	})
	if stats := x.coordinator.Stats(); len(stats) < nodes+1 {
		eventually(t, "the coordinator has all stats", func() bool { return len(x.coordinator.Stats()) == nodes+1 })
	}
}
