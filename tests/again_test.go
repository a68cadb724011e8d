package tests

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/supervisor"
)

// goesBack are the keys and faults of a job that goes back to its checkpoint of step 10 in step 13, and what it is to come to.
func goesBack(t testing.TB, more ...string) (set []string, faults string, want *supervisor.Result) {
	t.Helper()
	set = with([]string{"layout.pipeline=2", "supervisor.restarts=1", "save.every=5", "save.dir=" + t.TempDir()}, more...)
	return set, "kill trainer at decide of train step 12\nkill trainer at decide of train step 13", train(t, []string{"layout.pipeline=2"})
}

// faultFile is a fault plan as a file.
func faultFile(t testing.TB, faults string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "faults.yaml")
	write(t, path, "- "+strings.ReplaceAll(faults, "\n", "\n- ")+"\n")
	return path
}

// TestNodesComeAgain: nodes live over a return to a checkpoint. They join again at the address that they know, with the same
// token, and no other ones are started.
func TestNodesComeAgain(t *testing.T) {
	set, lines, want := goesBack(t)
	faults, err := fault.Parse(lines)
	if err != nil {
		t.Fatal(err)
	}
	starts := 0
	got, ends, err := company(context.Background(), t, set, supervisor.Cluster{
		Nodes: 3, Listen: "127.0.0.1:0", // one more than there are stages
		Spawn: func(context.Context, int, string, string, func(error)) error { starts++; return nil },
	}, supervisor.WithFaults(faults))
	if err != nil || slices.ContainsFunc(ends, func(err error) bool { return err != nil }) {
		t.Fatal(err, ends)
	}
	same(t, "a run that went back to a checkpoint", got, want)
	if starts != 3 || got.Resumes != 1 {
		t.Errorf("%d starts and %d resumes, want 3 and 1", starts, got.Resumes)
	}
}

// external starts the launch of a job whose nodes are started by hand, and returns what starts one.
func external(t testing.TB, set []string, flags ...string) (p *process, join func(more ...string) *process) {
	t.Helper()
	p = start(t, "troupe", command(t, "launch", set, append([]string{"--json", "--nodes", "2", "--external"}, flags...)...)...)
	words := strings.Fields(p.await("start node 2: "))
	return p, func(more ...string) *process {
		return startWith(t, []string{words[3]}, "troupe", append([]string{"node", "--join", words[7]}, more...)...)
	}
}

// leave waits until nodes end, in good order, having said something.
func leave(t testing.TB, nodes []*process, parts ...string) {
	t.Helper()
	for i, n := range nodes {
		if code := n.end(); code != 0 || !has(strings.Join(n.said, "; "), parts...) {
			t.Errorf("node %d ends with status %d: %q", i+1, code, n.said)
		}
	}
}

// TestExternalNodesComeAgain: so do processes that were started by hand.
func TestExternalNodesComeAgain(t *testing.T) {
	set, faults, want := goesBack(t)
	p, join := external(t, set, "--fault", faultFile(t, faults))
	nodes := []*process{join("--number", "1"), join("--number", "2")}
	got := p.result()
	same(t, "a run that went back to a checkpoint", got, want)
	if got.Resumes != 1 {
		t.Errorf("%d resumes, want 1", got.Resumes)
	}
	leave(t, nodes, " joins again: the run begins again")
}

// TestNodeIsStoppedWhileTheJobGoesBack: a node that is stopped in one attempt and goes on in the next one does no harm there,
// finds that it belongs to an old one, and is of use again.
func TestNodeIsStoppedWhileTheJobGoesBack(t *testing.T) {
	set := with(unending, "layout.pipeline=2")
	p, join := external(t, with(set, "supervisor.restarts=0", "supervisor.suspect=5", "save.every=5", "save.dir="+t.TempDir()))
	nodes := []*process{join("--number", "1"), join("--number", "2")}
	p.awaitSteps(3)
	nodes = append(nodes, join()) // takes the place of the one that is stopped
	p.await("node 3 has joined", "a spare")
	p.awaitSteps(6)
	nodes[1].signal(syscall.SIGSTOP)
	p.await("decision: resume the job from")
	p.await("2/2 nodes ready")
	p.awaitSteps(3)
	nodes[1].signal(syscall.SIGCONT)
	p.await("has joined", "a spare")
	p.awaitSteps(3)
	p.signal(interrupt)
	got := p.result()
	same(t, "a run that went back to a checkpoint", got, train(t, set, supervisor.WithStopAt(got.Steps)))
	if got.Resumes != 1 {
		t.Errorf("%d resumes, want 1", got.Resumes)
	}
	leave(t, nodes, "joins again")
}

// TestNodeDiesWhileNodesGather: that a node is killed before the run begins, or begins anew from a checkpoint, costs another
// process and nothing else.
func TestNodeDiesWhileNodesGather(t *testing.T) {
	t.Run("at first", func(t *testing.T) {
		p := start(t, "troupe", command(t, "launch", []string{"layout.pipeline=2"}, "--json", "--nodes", "2")...)
		eventually(t, "node 1 has been started", func() bool { return p.findNode(1) != 0 })
		p.strike(1, kill)
		p.await("start another process as node ", "signal: killed")
		p.await("2/2 nodes ready")
		same(t, "a run", p.result(), train(t, []string{"layout.pipeline=2"}))
	})
	t.Run("told to leave", func(t *testing.T) {
		p := start(t, "troupe", command(t, "launch", []string{"layout.pipeline=2"}, "--json", "--nodes", "2")...)
		eventually(t, "node 1 has been started", func() bool { return p.findNode(1) != 0 })
		p.strike(1, syscall.SIGTERM)
		p.await("start another process as node 1")
		same(t, "a run", p.result(), train(t, []string{"layout.pipeline=2"}))
	})
	t.Run("later", func(t *testing.T) {
		set, faults, want := goesBack(t)
		p := start(t, "troupe", command(t, "launch", set, "--json", "--nodes", "2", "--fault", faultFile(t, faults))...)
		p.await("decision: resume the job from")
		p.strike(2, kill)
		p.await("start another process as node 2", "signal: killed")
		got := p.result()
		same(t, "a run that went back to a checkpoint", got, want)
		if got.Resumes != 1 {
			t.Errorf("%d resumes, want 1", got.Resumes)
		}
	})
	t.Run("by hand", func(t *testing.T) {
		p, join := external(t, []string{"layout.pipeline=2"})
		first := join("--number", "2")
		p.await("1/2 nodes joined; waiting for node 1")
		first.signal(kill)
		p.await("node 2 is gone before the run has begun")
		p.await("0/2 nodes joined; waiting for nodes 1, 2")
		nodes := []*process{join(), join("--number", "2")}
		same(t, "a run", p.result(), train(t, []string{"layout.pipeline=2"}))
		for i, n := range nodes {
			if code := n.end(); code != 0 {
				t.Errorf("node %d ends with status %d: %q", i+1, code, n.said)
			}
		}
	})
}

// TestNodeHangsWhileNodesGather: a process that is there and does not come is replaced as one is that has ended.
func TestNodeHangsWhileNodesGather(t *testing.T) {
	set := with(unending, "layout.pipeline=2")
	p := start(t, "troupe", command(t, "launch", with(set, "save.every=5", "save.dir="+t.TempDir(), "supervisor.join=8"), "--json", "--nodes", "2")...)
	p.awaitSteps(6)
	p.strike(1, syscall.SIGSTOP)
	p.await("node 1 is lost")
	p.strike(2, kill)
	p.await("decision: resume the job from")
	p.await("kill the process of node 1: it has not joined for 4s")
	p.await("start another process as node 1", "signal: killed")
	p.await("2/2 nodes ready")
	p.awaitSteps(3)
	p.signal(interrupt)
	got := p.result()
	same(t, "a run that went back to a checkpoint", got, train(t, set, supervisor.WithStopAt(got.Steps)))
}

// TestFewerNodesComeAgain: a job that goes back to a checkpoint goes on with the nodes that are there, and uses another one that
// comes later.
func TestFewerNodesComeAgain(t *testing.T) {
	set := with(unending, "layout.pipeline=2", "layout.data=2")
	p, join := external(t, with(set, "supervisor.restarts=0", "supervisor.join=6", "save.every=5", "save.dir="+t.TempDir()))
	nodes := []*process{join("--number", "1"), join("--number", "2")}
	p.awaitSteps(6)
	nodes[0].signal(kill)
	p.await("decision: resume the job from")
	p.await("decision: 1 of 2 nodes came within 6s: going on with 1")
	p.await("1/1 nodes ready")
	p.awaitSteps(3)
	nodes = append(nodes, join("--number", "2"))
	p.await("node 2 has joined", "actors that were packed onto other nodes may move")
	p.await("moved ", "on node 2")
	p.awaitSteps(3)
	p.signal(interrupt)
	got := p.result()
	same(t, "a run that went on with fewer nodes", got, train(t, set, supervisor.WithStopAt(got.Steps)))
	for i, n := range nodes[1:] {
		if code := n.end(); code != 0 {
			t.Errorf("node %d ends with status %d: %q", i+2, code, n.said)
		}
	}
}

// TestNoNodesComeAgain: the last line says why the job went back, and that it can go on.
func TestNoNodesComeAgain(t *testing.T) {
	p, join := external(t, with(unending, "layout.pipeline=2", "supervisor.restarts=0", "supervisor.join=6", "save.every=5", "save.dir="+t.TempDir()))
	nodes := []*process{join(), join()}
	p.awaitSteps(6)
	for _, n := range nodes {
		n.signal(kill)
	}
	p.fails(1, "gave up: 0/2 nodes joined", "the job had gone back to a checkpoint: ", "; --resume goes on at train step ")
}

// TestNodesThatDoNotLive: what would happen to every node that is started ends the launch soon, and what happens by
// chance only when it happens too often.
func TestNodesThatDoNotLive(t *testing.T) {
	killed := errors.New("node 1 has ended: signal: killed")
	for _, c := range []struct {
		name    string
		why     error
		replace bool
		starts  int
		says    string
	}{
		{"killed", killed, true, 4, "signal: killed; it has ended 4 times within 1m0s, and supervisor.restarts is 3"},
		{"killed, and nobody starts another one", killed, false, 1, "node 1 has ended: signal: killed"},
		{"ended by itself", supervisor.Quit{Err: errors.New("node 1 has ended: exit status 1")}, true, 2, "node 1 has ended: exit status 1; so has another process in its place"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			starts := 0
			_, err := supervisor.Launch(context.Background(), job(t, "layout.pipeline=2", "supervisor.restarts=3"), supervisor.Cluster{
				Nodes: 1, Listen: "127.0.0.1:0", Replace: c.replace,
				Spawn: func(_ context.Context, _ int, _, _ string, ended func(error)) error {
					mu.Lock()
					starts++
					mu.Unlock()
					go ended(c.why)
					return nil
				},
			})
			mu.Lock()
			defer mu.Unlock()
			if starts != c.starts || err == nil || !has(err.Error(), c.says) {
				t.Errorf("%d starts, want %d; error %v, want %q", starts, c.starts, err, c.says)
			}
		})
	}
}

// TestNodesOfALauncherThatIsKilled: nodes that were started by hand end soon as well, and say why.
func TestNodesOfALauncherThatIsKilled(t *testing.T) {
	p, join := external(t, with(endless, "layout.pipeline=2", "supervisor.suspect=5"))
	nodes := []*process{join(), join()}
	p.await("step 3/")
	p.signal(kill)
	p.end()
	for _, n := range nodes {
		n.fails(1, "troupe: the run is over: nobody listens at 127.0.0.1:", " any more")
	}
}

// TestSpareWaits: a node for which there is no place asks until the run has begun, and is a spare then.
func TestSpareWaits(t *testing.T) {
	p, join := external(t, with(unending, "layout.pipeline=2", "supervisor.join=20"))
	nodes := []*process{join("--number", "1")}
	p.await("1/2 nodes joined")
	// Both ask to be node 1. One is let in as node 2; until then, whoever comes last waits.
	nodes = append(nodes, join("--number", "1"), join("--number", "1"))
	p.await("node 3 has joined", "a spare")
	p.awaitSteps(2)
	p.signal(interrupt)
	p.result()
	for i, n := range nodes {
		if code := n.end(); code != 0 {
			t.Errorf("node %d ends with status %d: %q", i+1, code, n.said)
		}
	}
}
