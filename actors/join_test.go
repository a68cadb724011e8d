package actors

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

func within(d time.Duration) context.Context {
	// The timer lives no longer than the test would.
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func tryServer(t testing.TB, ctx context.Context, o ServerOptions) error {
	t.Helper()
	s, err := StartServer(ctx, o)
	if err == nil {
		s.Close()
		t.Fatal("the server started")
	}
	if strings.Contains(err.Error(), "\n") {
		t.Fatalf("the error is not one line: %q", err)
	}
	return err
}

func TestServersThatDoNotStart(t *testing.T) {
	first := startServer(t, ServerOptions{})
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	talker := newTalker(t, "HTTP/1.1 400 Bad Request\r\n")
	other := startForeign(t)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	for _, test := range []struct {
		name string
		o    ServerOptions
		want error
		says string
	}{
		{"wrong token", ServerOptions{Job: "test", Token: "guessed", Join: first.Addr()}, ErrWrongToken, first.Addr()},
		{"other job", ServerOptions{Job: "other", Token: testToken, Join: first.Addr()}, ErrWrongToken, `"other"`},
		{"port taken", ServerOptions{Job: "test", Token: testToken, Listen: first.Addr()}, ErrTaken, first.Addr()},
		{"nobody there", ServerOptions{Job: "test", Token: testToken, Join: nobody.Addr().String()}, nil, "connection refused"},
		{"no node", ServerOptions{Job: "test", Token: testToken, Join: talker}, nil, "not a node"},
		{"another cluster", ServerOptions{Job: "test", Token: testToken, Join: other}, nil, "not one of a run"},
		{"no address", ServerOptions{Job: "test", Token: testToken, Join: "here"}, nil, `"here" is not host:port`},
		{"no port", ServerOptions{Job: "test", Token: testToken, Listen: "127.0.0.1:99999"}, nil, "99999"},
		{"no token", ServerOptions{Job: "test"}, nil, "token"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := tryServer(t, within(500*time.Millisecond), test.o)
			if test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("error %q, want %v and %q", err, test.want, test.says)
			}
		})
	}
}

// newTalker listens and greets whoever comes with a line.
func newTalker(t testing.TB, line string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, line)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// startForeign starts a NATS server that has nothing to do with any run.
func startForeign(t testing.TB) string {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true,
		Cluster: server.ClusterOpts{Name: "foreign", Host: "127.0.0.1", Port: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the foreign server is not ready")
	}
	return s.ClusterAddr().String()
}

// TestRouteNeedsThePassword: a server that does not ask first gets no route without the token either.
func TestRouteNeedsThePassword(t *testing.T) {
	first := startServer(t, ServerOptions{})
	o := ServerOptions{Job: "test", Token: "guessed"}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, NoSystemAccount: true,
		Cluster: server.ClusterOpts{Name: clusterName(first.options), Host: "127.0.0.1", Port: -1, PoolSize: -1},
		Routes:  []*url.URL{{Scheme: "nats-route", Host: first.Addr(), User: url.UserPassword("route", secret(o, "route"))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	refused := &refusals{heard: make(chan struct{}, 100)}
	s.SetLoggerV2(refused, false, false, false)
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	receive(t, refused.heard, "refusal")
	receive(t, refused.heard, "second refusal") // it tried again
	if n := first.nats.NumRoutes(); n != 0 {
		t.Fatalf("%d routes without the password", n)
	}
}

type refusals struct {
	serverLog
	heard chan struct{}
}

func (r *refusals) Noticef(string, ...any) {}
func (r *refusals) Warnf(string, ...any)   {}
func (r *refusals) Errorf(format string, v ...any) {
	if strings.Contains(fmt.Sprintf(format, v...), "Authorization Violation") {
		r.heard <- struct{}{}
	}
}

// opening is a coordinator that waits for others, who have not come.
func opening(t testing.TB, o Coordination) (*cast, *Coordinator, *Server) {
	s := startServer(t, ServerOptions{})
	c := newCast(t, Options{Placement: twoNodes(), Server: s})
	c.play(plan.Trainer, discard, nil)
	c.play(stage0, discard, nil)
	o.Nodes, o.Version = 3, "v1"
	o.Heartbeat, o.Suspect = 20*time.Millisecond, 500
	o.Welcome.Fingerprint = "f"
	x, err := c.Coordinate(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Shutdown(within(patience), "the test is over"); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return c, x, s
}

func TestNodesThatAreNotLetIn(t *testing.T) {
	_, _, first := opening(t, Coordination{Numbers: 5})
	s := startServer(t, ServerOptions{Join: first.Addr()})
	one, err := Join(within(patience), s, Hello{Node: 1, Name: "b", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Leave(nil)
	if one.Index() != 1 || one.Name() != "b" || !slices.Equal(one.Welcome().Placement, twoNodes()) || one.Welcome().Nodes != 3 {
		t.Fatalf("welcome %+v", one.Welcome())
	}
	stranger := startServer(t, ServerOptions{Join: first.Addr()})
	for _, test := range []struct {
		hello Hello
		says  string
	}{
		{Hello{Node: 5, Version: "v1"}, "legal are the numbers that nodes have had so far, 1 to 2,"},
		{Hello{Node: 0, Version: "v1"}, "legal are the numbers that nodes have had so far, 1 to 2,"},
		{Hello{Node: 2, Version: "v2"}, `its version is "v2", the coordinator's is "v1"`},
	} {
		_, err := Join(within(patience), stranger, test.hello)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), test.says) {
			t.Fatalf("%+v: error %v, want %q", test.hello, err, test.says)
		}
	}
	another := func() *Server { return startServer(t, ServerOptions{Join: first.Addr()}) } // they are processes of their own
	two, err := Join(within(patience), another(), Hello{Node: 4, Version: "v1"})           // is one of more than there are now
	if err != nil {
		t.Fatal(err)
	}
	if two.Index() != 2 || two.Name() != "node 2" {
		t.Fatalf("the free place is %d (%s)", two.Index(), two.Name())
	}
	if _, err := Join(within(300*time.Millisecond), stranger, Hello{Node: -1, Version: "v1"}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "all 2 nodes") {
		t.Fatalf("error %v", err)
	}
	time.AfterFunc(200*time.Millisecond, func() { two.Leave(errors.New("it was interrupted")) })
	three, err := Join(within(patience), another(), Hello{Node: 1, Version: "v1"})
	if err != nil || three.Index() != 2 {
		t.Fatalf("the place that is free again: %v", err)
	}
	defer three.Leave(nil)
	n := newCast(t, Options{Index: 1, Placement: twoNodes(), Server: s})
	if err := one.Ready(within(patience), n.Node, "g"); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "fingerprint g, the coordinator's has f") {
		t.Fatalf("error %v", err)
	}
}

func TestChecklist(t *testing.T) {
	lines := &lines{}
	_, c, first := opening(t, Coordination{Progress: lines.add, Join: 300 * time.Millisecond})
	c.tell = 50 * time.Millisecond
	if err := c.Gather(within(patience)); err == nil || !strings.Contains(err.Error(), "gave up: 0/2 nodes joined; waiting for nodes 1, 2 since 0 s") {
		t.Fatalf("error %v", err)
	}
	c.options.Join = 0
	s := startServer(t, ServerOptions{Join: first.Addr()})
	one, err := Join(within(patience), s, Hello{Node: 1, Name: "b", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	gathered := make(chan error, 1)
	go func() { gathered <- c.Gather(within(patience)) }()
	has := func(part string) {
		t.Helper()
		eventually(t, "a line says "+part, func() bool {
			return slices.ContainsFunc(lines.get(), func(l string) bool { return strings.Contains(l, part) })
		})
	}
	has("1/2 nodes joined; waiting for node 2 since")
	two, err := Join(within(patience), startServer(t, ServerOptions{Join: first.Addr()}), Hello{Node: 2, Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	defer two.Leave(nil)
	has("b (building its actors)")
	has("node 0 (it does not hear stage.p1.d0)")
	one.Leave(errors.New("its machine is wanted back"))
	has("b is gone before the run has begun: its machine is wanted back")
	has("1/2 nodes joined; waiting for node 1 since")
	one, err = Join(within(patience), s, Hello{Node: 1, Name: "b", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	one.Leave(fmt.Errorf("it cannot begin: %w", Unfit{errors.New("no file /data")}))
	if err := receive(t, gathered, "end of gathering"); err == nil || !strings.Contains(err.Error(), "b has left: it cannot begin: no file /data") {
		t.Fatalf("error %v", err)
	}
}

// kill ends a member as if its process had died.
func (m *Member) kill() {
	m.rest()
	close(m.stop)
	<-m.done
	m.doubts.end()
	m.control.close()
	m.server.Close()
}

func TestLostNodeIsNamedWithWhatItDid(t *testing.T) {
	told := make(chan machine.Failed, 4)
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
		c.spawn(&fakeMachine{id: stage1, handle: discard, wait: func() machine.Wait {
			return machine.Wait{Round: plan.Round{Step: 3, Phase: plan.TrainPhase}, Op: "forward", Value: activation(4), From: stage0}
		}}, nil)
	})
	eventually(t, "the coordinator knows what stage 1 waits for", func() bool {
		return slices.ContainsFunc(x.coordinator.Stats(), func(s Stats) bool { return s.Actor == stage1 && s.Wait.Op != "" })
	})
	x.members[0].kill()
	x.members = nil
	f := receive(t, told, "loss")
	for _, part := range []string{"no heartbeat for", "stage.p1.d0 was at forward (train step 3), waiting for activation into layer 1 micro-batch 4 from stage.p0.d0"} {
		if f.Node != "node 1" || !strings.Contains(f.Cause, part) {
			t.Fatalf("told %+v, want %q", f, part)
		}
	}
}

func TestNodesStopWhenTheCoordinatorIsGone(t *testing.T) {
	x := gatherCompany(t, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
			c.play(stage0, discard, nil)
		} else {
			c.play(stage1, discard, nil)
		}
	})
	close(x.coordinator.stop)
	<-x.coordinator.done
	x.coordinator.control.close()
	m := x.members[0]
	if err := m.Wait(within(patience)); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "coordinator") {
		t.Fatalf("error %v", err)
	}
	m.Leave(nil)
	x.once.Do(func() {}) // nothing is left to end
}

func TestNodesHearWhyTheRunStops(t *testing.T) {
	x := gatherCompany(t, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
			c.play(stage0, discard, nil)
		} else {
			c.play(stage1, discard, nil)
		}
	})
	heard := make(chan error, 1)
	m := x.members[0]
	go func() {
		err := m.Wait(within(patience))
		m.Leave(nil)
		heard <- err
	}()
	x.once.Do(func() {
		if err := x.coordinator.Shutdown(within(patience), "stage.p0.d0 burnt"); err != nil {
			t.Error(err)
		}
	})
	if err := receive(t, heard, "end"); err == nil || !strings.Contains(err.Error(), "stage.p0.d0 burnt") {
		t.Fatalf("error %v", err)
	}
}

// TestShutdownHasABound: a node that does not answer is named, and not waited for any longer.
func TestShutdownHasABound(t *testing.T) {
	x := gatherCompany(t, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
			c.play(stage0, discard, nil)
		} else {
			c.play(stage1, discard, nil)
		}
	})
	x.once.Do(func() {
		err := x.coordinator.Shutdown(within(100*time.Millisecond), "")
		if err == nil || !strings.Contains(err.Error(), "node 1 did not leave") {
			t.Errorf("error %v", err)
		}
		x.members[0].Leave(nil)
	})
}

func TestStallIsToldToTheTrainer(t *testing.T) {
	told := make(chan machine.Failed, 4)
	c := newCast(t, Options{Placement: place(plan.Trainer, stage0)})
	round := plan.Round{Step: 1, Phase: plan.TrainPhase}
	c.spawn(&fakeMachine{id: plan.Trainer, handle: func(e machine.Event) []machine.Effect {
		told <- e.(machine.Failed)
		return nil
	}, wait: func() machine.Wait {
		return machine.Wait{Round: round, Op: "decide", Value: plan.Value{Kind: plan.Loss}, From: stage0}
	}}, nil)
	c.spawn(&fakeMachine{id: stage0, handle: discard, wait: func() machine.Wait {
		return machine.Wait{Round: round, Op: "forward layers 0..1 micro-batch 0", Running: true}
	}}, nil)
	x, err := c.Coordinate(Coordination{Heartbeat: 5 * time.Millisecond, Deadline: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.Shutdown(within(patience), ""); err != nil {
			t.Error(err)
		}
	}()
	if err := x.Gather(within(patience)); err != nil {
		t.Fatal(err)
	}
	f := receive(t, told, "stall")
	if f.Actor != stage0 || f.Node != "node 0" || !strings.Contains(f.Op, "forward layers 0..1") || !strings.Contains(f.Cause, "nothing has moved for 50ms: trainer") {
		t.Fatalf("told %+v", f)
	}
}
