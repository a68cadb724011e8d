package tests

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/supervisor"
)

// unending are the keys of a job that ends when it is interrupted.
var unending = []string{"train.steps=1000000", "train.evaluate.every=0", "train.evaluate.batch=0", "supervisor.heartbeat=0.1"}

// nodeProcess is the process of a node that a launch has started.
func (p *process) nodeProcess(number int) int {
	p.t.Helper()
	pid := p.findNode(number)
	if pid == 0 {
		p.t.Fatalf("node %d has no process", number)
	}
	return pid
}

// findNode is nodeProcess, or 0 if there is none. Not every child of a launch is a node.
func (p *process) findNode(number int) int {
	p.t.Helper()
	for _, pid := range children(p.t, p.cmd.Process.Pid) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue
		}
		args := strings.Split(string(bytes.TrimRight(b, "\x00")), "\x00")
		if i := slices.Index(args, "--number"); i >= 0 && args[i+1] == strconv.Itoa(number) {
			return pid
		}
	}
	return 0
}

func (p *process) strike(node int, s syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(p.nodeProcess(node), s); err != nil {
		p.t.Fatal(err)
	}
}

// asUndisturbed interrupts a run, and compares it with one of as many steps in which nothing happened. Whoever was
// restarted, but for planned moves, must have lived on one of the nodes.
func (p *process) asUndisturbed(set []string, lost ...int) *supervisor.Result {
	p.t.Helper()
	p.signal(interrupt)
	got := p.result()
	same(p.t, fmt.Sprint(p.t.Name(), ", ", got.Steps, " steps"), got, train(p.t, set, supervisor.WithStopAt(got.Steps)))
	for _, r := range got.Recoveries {
		if !r.Planned && !slices.Contains(lost, r.From) {
			p.t.Errorf("%s was restarted, and its node %d was not lost: %+v", r.Actor, r.From, r)
		}
	}
	if len(got.Recoveries) == 0 || got.Resumes > 0 {
		p.t.Errorf("%d recoveries and %d resumes, want some and none", len(got.Recoveries), got.Resumes)
	}
	return got
}

// until reads until n lines in all have had all parts.
func (p *process) until(n int, parts ...string) {
	p.t.Helper()
	for _, line := range p.said {
		if has(line, parts...) {
			n--
		}
	}
	for ; n > 0; n-- {
		p.await(parts...)
	}
}

// awaitSteps reads until n more steps have been committed.
func (p *process) awaitSteps(n int) {
	p.t.Helper()
	for range n {
		p.await("step ", "/1000000")
	}
}

// TestNodesDie kills processes of nodes in the middle of a run: the weights are those of a run in which nothing
// happened, and only what was on them is restarted.
func TestNodesDie(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes int
		set   []string
		die   []int
	}{
		{"a node", 4, []string{"layout.pipeline=2", "layout.data=2"}, []int{4}},
		{"the first stage", 4, []string{"layout.pipeline=4"}, []int{1}},
		{"one after the other", 4, []string{"layout.pipeline=2", "layout.data=2"}, []int{2, 3}},
		{"in bf16", 2, []string{"layout.pipeline=2", "train.precision=bf16"}, []int{2}},
		{"half of all", 2, []string{"layout.pipeline=3"}, []int{1}},
		{"with a spare", 3, []string{"layout.pipeline=2", "cluster.spares=1"}, []int{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := with(with(unending, c.set...), "model.dropout=0.1")
			p := start(t, "troupe", command(t, "launch", set, "--json", "--nodes", fmt.Sprint(c.nodes))...)
			p.awaitSteps(5)
			for i, node := range c.die {
				if i > 0 {
					p.until(i, "has joined") // in the place of the one before; it is put to use
					p.awaitSteps(20)
				}
				p.strike(node, kill)
				p.await("recovered stage", "caught up")
				p.awaitSteps(5)
			}
			p.asUndisturbed(set, c.die...)
		})
	}
}

// TestNodeStopsForAWhile: a node that is taken for dead and comes back finds that its actors live elsewhere, does no harm,
// and is of use again.
func TestNodeStopsForAWhile(t *testing.T) {
	set := with(unending, "layout.pipeline=2", "layout.data=2")
	p := start(t, "troupe", command(t, "launch", set, "--json", "--nodes", "4")...)
	p.awaitSteps(5)
	pid := p.nodeProcess(2)
	p.strike(2, syscall.SIGSTOP)
	p.await("node 2 is lost", "no heartbeat")
	p.await("recovered stage", "caught up")
	time.Sleep(time.Second) // what comes for it meanwhile must not harm it later
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.await("node 2: node 2 joins again")
	p.until(1, "has joined")
	p.until(1, "moved stage")
	p.awaitSteps(2)
	p.asUndisturbed(set, 2)
	gone(t, []int{pid})
}

// TestLateNode: a node that joins in the middle of a run is given the actors of the next one that is lost.
func TestLateNode(t *testing.T) {
	set := with(unending, "layout.pipeline=2")
	p := start(t, "troupe", command(t, "launch", set, "--json", "--nodes", "2", "--external")...)
	var nodes []*process
	join := func(token, address string, more ...string) {
		nodes = append(nodes, startWith(t, []string{token}, "troupe", append([]string{"node", "--join", address}, more...)...))
	}
	var token, address string
	for i := 1; i <= 2; i++ {
		words := strings.Fields(p.await(fmt.Sprintf("start node %d: ", i)))
		token, address = words[3], words[7]
		join(token, address, "--number", strconv.Itoa(i))
	}
	p.awaitSteps(3)
	join(token, address)
	p.await("node 3 has joined", "a spare") // although cluster.spares is 0
	p.awaitSteps(3)
	nodes[0].signal(kill)
	p.await("stage.p0.d0", "from node 1", "to node 3")
	p.await("recovered stage.p0.d0", "on node 3")
	p.awaitSteps(3)
	p.asUndisturbed(set, 1)
	for i, n := range nodes[1:] {
		if code := n.end(); code != 0 {
			t.Errorf("node %d ends with status %d: %s", i+2, code, strings.Join(n.said, "\n"))
		}
	}
}

// TestNodeIsInterrupted: a node that is interrupted says that it leaves, and the run goes on without it.
func TestNodeIsInterrupted(t *testing.T) {
	set := with(unending, "layout.pipeline=2")
	p := start(t, "troupe", command(t, "launch", set, "--json", "--nodes", "2", "--external")...)
	var nodes []*process
	for i := 1; i <= 2; i++ {
		words := strings.Fields(p.await(fmt.Sprintf("start node %d: ", i)))
		nodes = append(nodes, startWith(t, []string{words[3]}, "troupe", "node", "--join", words[7], "--number", strconv.Itoa(i)))
	}
	p.awaitSteps(3)
	nodes[0].signal(interrupt)
	nodes[0].await("troupe: leaving the run; again to stop at once")
	nodes[0].said = nil
	nodes[0].fails(1, "troupe: interrupted: this node has left the run")
	p.await("node 1 is lost", "interrupted")
	p.await("recovered stage", "caught up")
	p.awaitSteps(3)
	p.asUndisturbed(set, 1)
	if code := nodes[1].end(); code != 0 {
		t.Errorf("the other node ends with status %d", code)
	}
}

// TestNodeDiesUnderALimit: what the plan says that a recovery takes is enough where messages go over a wire and actors come to
// other nodes.
func TestNodeDiesUnderALimit(t *testing.T) {
	set := with(unending, "layout.pipeline=2", "model.width=64", "model.context=4", "train.batch=4", "train.micro_batch=2")
	j := job(t, set...)
	m, err := supervisor.BuildModel(j, 256)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(j, m, plan.Options{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	var most int64
	for _, a := range p.Predicted.Actors {
		most = max(most, a.Recovery)
	}
	limited := with(set, fmt.Sprint("train.memory_limit=", most))
	run := start(t, "troupe", command(t, "launch", limited, "--json", "--nodes", "2")...)
	run.awaitSteps(5)
	run.strike(2, kill)
	run.await("recovered stage", "caught up")
	run.awaitSteps(5)
	for _, a := range run.asUndisturbed(limited, 2).Actors {
		if a.PeakBytes > most {
			t.Errorf("%s held %d bytes of %d", a.ID, a.PeakBytes, most)
		}
	}
}
