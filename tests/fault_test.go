package tests

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/supervisor"
)

// struck launches the small job over processes, with faults.
func struck(t testing.TB, nodes int, set []string, faults ...string) *process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "faults.yaml")
	write(t, path, "- "+strings.Join(faults, "\n- ")+"\n")
	return start(t, "troupe", command(t, "launch", set, "--json", "--nodes", fmt.Sprint(nodes), "--fault", path)...)
}

// count counts the lines that have all parts, of what was said so far.
func (p *process) count(parts ...string) int {
	n := 0
	for _, line := range p.said {
		if has(line, parts...) {
			n++
		}
	}
	return n
}

// unharmed interrupts a run in which nobody was restarted, and compares it with one in which nothing happened.
func (p *process) unharmed(set []string) {
	p.t.Helper()
	p.signal(interrupt)
	got := p.result()
	same(p.t, fmt.Sprint(p.t.Name(), ", ", got.Steps, " steps"), got, train(p.t, set, supervisor.WithStopAt(got.Steps)))
	if len(got.Recoveries) > 0 || got.Resumes > 0 {
		p.t.Errorf("%d resumes, recoveries %v", got.Resumes, got.Recoveries)
	}
}

// suspicious are the keys of a run whose nodes are suspected after a second.
var suspicious = with(unending, "layout.pipeline=2", "layout.data=2", "supervisor.suspect=10")

// TestPartition cuts nodes off. A short cut costs time. A long one costs the nodes without the trainer: whichever side is
// named, they end, and come back with nothing when they are heard again.
func TestPartition(t *testing.T) {
	t.Run("short", func(t *testing.T) {
		p := struck(t, 4, suspicious, "partition 1,2 at stage.p0.d0 forward of train step 5 for 500ms", "partition 3 at trainer decide of train step 30 for 300ms")
		p.await("fault: partition 3")
		p.awaitSteps(10)
		p.unharmed(suspicious)
	})
	for _, c := range []struct {
		name, cut string
		lost      []int
	}{
		{"the first stage", "partition 1", []int{1}},
		{"all the others", "partition 0,1,3,4", []int{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			set := with(suspicious, "save.dir="+dir)
			// Clocks have gone back before: silence is found all the same.
			p := struck(t, 4, set, "jump-clock 0 at trainer decide of train step 3 for -1h", fmt.Sprintf("jump-clock %d at trainer decide of train step 3 for -1h", c.lost[0]),
				c.cut+" at trainer decide of train step 5 for 4s")
			// Either side may be the first to give up the other.
			p.until(1, fmt.Sprintf("node %d is lost", c.lost[0]))
			p.until(1, "recovered stage", "caught up")
			p.until(1, fmt.Sprintf("node %d: ", c.lost[0]), "joins again")
			p.until(1, fmt.Sprintf("node %d has joined", c.lost[0]))
			p.awaitSteps(5)
			p.asUndisturbed(suspicious, c.lost...)
			audit := start(t, "troupe", "audit", dir)
			if code := audit.end(); code != 0 {
				t.Errorf("audit: status %d\n%s", code, audit.tail())
			}
		})
	}
}

// TestClocksJump: a node whose clock has gone forward or back takes nobody for dead, and what it is owed is sent again.
func TestClocksJump(t *testing.T) {
	set := with(unending, "layout.pipeline=2", "layout.data=2", "supervisor.deadline=20")
	var faults []string
	for i, d := range []string{"1h", "-2h", "3h"} {
		for node := range 3 {
			faults = append(faults, fmt.Sprintf("jump-clock %d at trainer decide of train step %d for %s", node, 5+10*i, d))
		}
		// A frame that is refused, and that no other follows, is sent again when the clock of its sender says so.
		faults = append(faults, fmt.Sprintf("corrupt report from stage.p0.d0 to trainer at of train step %d", 5+10*i))
	}
	p := struck(t, 2, set, faults...)
	p.until(3, "node 2: fault: jump-clock 2 at")
	p.until(3, "fault: corrupt")
	p.until(1, "refused frame: checksum differs")
	p.awaitSteps(10)
	p.unharmed(set)
	if n := p.count("jump-clock 1 at"); n != 6 { // node 0 says so, and node 1
		t.Errorf("jump-clock 1 is told of %d times\n%s", n, p.tail())
	}
}

// TestFaultsAreCountedTogether: a fault strikes as often as it says over all processes, those that are started anew
// among them, and at a point on one node it strikes another.
func TestFaultsAreCountedTogether(t *testing.T) {
	set := with(unending, "layout.pipeline=3")
	p := struck(t, 3, set,
		"panic stage.p1.d0 at forward of train step 10 times 2",
		"kill-node 2 at stage.p0.d0 backward-weight of train step 10", // the stage that has panicked walks the step on another node
		"kill stage.p1.d0 at stage.p2.d0 forward of train step 30")
	p.until(2, "fault: panic stage.p1.d0")
	p.until(1, "node 2 is lost", "has ended: signal: killed")
	p.until(1, "has joined")
	p.until(1, "fault: kill stage.p1.d0")
	// When the node that has joined takes the stage at the same moment, it is a move that brings it back.
	p.until(1, "stage.p1.d0 (incarnation ", "into train step 3")
	p.awaitSteps(10)
	p.signal(interrupt)
	got := p.result()
	same(t, fmt.Sprint(got.Steps, " steps"), got, train(t, set, supervisor.WithStopAt(got.Steps)))
	for line, n := range map[string]int{"fault: panic": 2, "fault: kill-node": 1, "fault: kill stage": 1, "never struck": 0} {
		if p.count(line) != n {
			t.Errorf("%q is said %d times, want %d\n%s", line, p.count(line), n, p.tail())
		}
	}
	for i, line := range p.said {
		if has(line, "panicked") && i+1 < len(p.said) && has(p.said[i+1], "goroutine") {
			t.Errorf("a panic that was asked for has a stack")
		}
	}
}

// TestFaultsAreCountedOverAttempts: a fault that sent the job back to its checkpoint does not strike in the next attempt, whose
// nodes know nothing of it.
func TestFaultsAreCountedOverAttempts(t *testing.T) {
	set := with(failFast, "layout.pipeline=2", "save.dir="+t.TempDir(), "save.every=5")
	faults, err := fault.Parse("kill stage.p1.d0 at forward of train step 12")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var told []string
	got, _, err := company(context.Background(), t, set, supervisor.Cluster{Nodes: 2, Listen: "127.0.0.1:0"}, supervisor.WithFaults(faults),
		supervisor.WithProgress(func(p supervisor.Progress) {
			if p.Decision != nil {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, *p.Decision)
			}
		}))
	if err != nil {
		t.Fatal(err, told)
	}
	want := train(t, []string{"layout.pipeline=2"})
	if got.Resumes != 1 || got.WeightsSHA256 != want.WeightsSHA256 {
		t.Errorf("%d resumes, weights %s, want 1 and %s\n%s", got.Resumes, got.WeightsSHA256, want.WeightsSHA256, strings.Join(told, "\n"))
	}
}

// TestPausedNode: the others go on long before a node that is stopped for ten seconds; it finds itself given up, and is of use again.
func TestPausedNode(t *testing.T) {
	p := struck(t, 4, suspicious, "pause-node 2 at stage.p0.d0 forward of train step 5 for 10s")
	p.await("node 2 is lost", "no heartbeat")
	p.await("recovered stage", "caught up")
	pid := p.nodeProcess(2)
	if _, _, state := stat(fmt.Sprintf("/proc/%d/stat", pid)); state != "T" {
		t.Errorf("node 2 is in state %q when the others go on", state)
	}
	p.awaitSteps(5)
	p.until(1, "node 2: node 2 joins again")
	p.until(1, "has joined")
	p.awaitSteps(5)
	p.asUndisturbed(suspicious, 2)
	gone(t, []int{pid})
}
