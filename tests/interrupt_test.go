package tests

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/troupe-train/troupe/supervisor"
)

// TestSecondInterrupt: a second Ctrl-C ends a launch at once, in the middle of a step, with a line that says so, and leaves no process.
func TestSecondInterrupt(t *testing.T) {
	// No step ends while the stage hangs.
	hangs := faultFile(t, "hang stage.p1.d0 at forward of train step 3 for 1h")
	p := start(t, "troupe", command(t, "launch", with(unending, "layout.pipeline=2"), "--nodes", "2", "--fault", hangs)...)
	p.await("fault: hang")
	nodes := children(t, p.cmd.Process.Pid)
	p.signal(interrupt)
	p.await("troupe: stopping after this step; again to stop at once")
	p.said = nil
	p.signal(interrupt)
	p.fails(1, "troupe: stopped at once: what came after the newest checkpoint is lost; nodes killed: 2")
	gone(t, nodes)
}

// TestEverybodyIsInterrupted: who stops all processes of a run at once, nodes first, gets what who stops the launch gets: the
// step that is running, and all before it.
func TestEverybodyIsInterrupted(t *testing.T) {
	set := with(unending, "layout.pipeline=2")
	p, join := external(t, set)
	nodes := []*process{join("--number", "1"), join("--number", "2")}
	p.awaitSteps(3)
	for _, n := range append(nodes, p) {
		n.signal(interrupt)
	}
	got := p.result()
	same(t, "a run that was stopped", got, train(t, set, supervisor.WithStopAt(got.Steps)))
	if !got.Stopped || got.Resumes > 0 || len(got.Recoveries) > 0 {
		t.Errorf("%+v", got)
	}
	leave(t, nodes)
}

// TestInterruptedWithoutNodes: a run in which nobody is left that could end a step ends at once.
func TestInterruptedWithoutNodes(t *testing.T) {
	// The run does not begin while the stage hangs, so that there is no state to lose.
	p, join := external(t, with(unending, "layout.pipeline=2", "supervisor.join=600"), "--fault", faultFile(t, "hang stage.p1.d0 at load of init step 0 for 1h"))
	nodes := []*process{join(), join()}
	p.await("2/2 nodes ready")
	for _, n := range nodes {
		n.signal(kill)
	}
	p.await("waits for a node: none is left")
	p.signal(interrupt)
	p.await("troupe: stopping after this step")
	p.said = nil
	p.fails(1, "troupe: interrupted in train step 0 while ", " waits for a node")
}

// TestInterruptedBeforeItBegins: who stops a launch before it has done anything gets no process, and a node that has not joined
// anything says that.
func TestInterruptedBeforeItBegins(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("interrupted")
	cancel(reason)
	_, _, err := company(ctx, t, []string{"layout.pipeline=2"}, supervisor.Cluster{
		Nodes: 2, Listen: "127.0.0.1:0",
		Spawn: func(context.Context, int, string, string, func(error)) error {
			t.Error("a node is started")
			return nil
		},
	})
	if err == nil || !has(err.Error(), "interrupted before train step 0 began") {
		t.Errorf("error %v", err)
	}
	if err := supervisor.Serve(ctx, supervisor.NodeOptions{Join: "127.0.0.1:1", Token: "small.X", Wait: patience, Log: &discard{}}); !errors.Is(err, reason) {
		t.Errorf("a node: %v", err)
	}
	early := startWith(t, []string{"TROUPE_TOKEN=small.X"}, "troupe", "node", "--join", "127.0.0.1:1", "--launched")
	early.fails(1, "troupe: the run is over: nobody listens at 127.0.0.1:1 any more")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := startWith(t, []string{"TROUPE_TOKEN=small.X"}, "troupe", "node", "--join", l.Addr().String())
	if c, err := l.Accept(); err != nil {
		t.Fatal(err)
	} else {
		defer c.Close()
	}
	n.signal(interrupt)
	n.await("troupe: leaving the run")
	n.said = nil
	n.fails(1, "troupe: interrupted before this node had joined a run")
}
