package tests

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/supervisor"
)

// failFast are the keys of a job that ends at the first failure.
var failFast = []string{"supervisor.restarts=0"}

// broken is a segment that panics in the backward pass of one step.
type broken struct {
	model.Segment
	step int64
}

func (b broken) BackwardInput(k device.Kernels, c *model.Call) {
	if c.Step == b.step {
		panic("a broken invariant")
	}
	b.Segment.BackwardInput(k, c)
}

// TestActorPanics: a panic in an actor ends the run with an error that names actor, step and cause, and the
// process lives on.
func TestActorPanics(t *testing.T) {
	for _, c := range []struct {
		layer int
		actor string
	}{{1, "stage.p0.d"}, {3, "stage.p1.d"}, {6, "stage.p2.d"}} {
		set := with(failFast, "layout.pipeline=3", "layout.data=2", "layout.stages=2,3,2")
		gpt, err := supervisor.BuildModel(job(t, set...), 256)
		if err != nil {
			t.Fatal(err)
		}
		layers := slices.Clone(gpt.Layers)
		layers[c.layer].Segments = slices.Clone(layers[c.layer].Segments)
		layers[c.layer].Segments[0] = broken{layers[c.layer].Segments[0], 3}
		m, err := model.New(gpt.Kind, gpt.Context, gpt.Vocab, layers)
		if err != nil {
			t.Fatal(err)
		}
		_, err = supervisor.Run(context.Background(), job(t, set...), supervisor.WithModel(m))
		f := new(supervisor.Failure)
		if !errors.As(err, &f) || f.Round != (plan.Round{Step: 3, Phase: plan.TrainPhase}) || !strings.HasPrefix(string(f.Actor), c.actor) {
			t.Errorf("layer %d: error %v, want a failure of %s in step 3", c.layer, err, c.actor)
		}
		if !has(fmt.Sprint(err), c.actor, "train step 3", "a broken invariant") || strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("layer %d: error %q", c.layer, err)
		}
	}
}

// stolen is a Source whose text is gone after some windows.
type stolen struct{ windows int64 }

func (s stolen) Window(i int64, window []int32) {
	if i >= s.windows {
		panic(fmt.Sprintf("window %d: the file is gone", i))
	}
	clear(window)
}
func (stolen) Held(_ int, window []int32) { clear(window) }

// TestDataIsGone: a source that fails in the middle ends the run, too.
func TestDataIsGone(t *testing.T) {
	_, err := supervisor.Run(context.Background(), job(t, with(failFast, "layout.pipeline=2")...), supervisor.WithData(stolen{53}))
	if err == nil || !has(err.Error(), "trainer", "train step 5", "window 53: the file is gone") {
		t.Errorf("error %v", err)
	}
}

// endless is a job that ends only by what the test does to it.
var endless = append([]string{"train.steps=1000000", "train.evaluate.every=0", "train.evaluate.batch=0"}, failFast...)

// TestActorFailsOnANode: an actor of a node that fails ends the run on all nodes, and the last line says who and why.
func TestActorFailsOnANode(t *testing.T) {
	faults := filepath.Join(t.TempDir(), "faults.yaml")
	write(t, faults, "- panic shard.p0.d0 at reduce of train step 0\n")
	p := start(t, "troupe", command(t, "launch", with(failFast, "layout.pipeline=2"), "--nodes", "2", "--fault", faults)...)
	p.fails(1, "shard.p0.d0 on node ", "failed in ", "step 0", "panic: ")
}

// TestNodeIsKilled: where no restart is legal, the run ends within seconds, and the last line names the node and the step. Nothing is left behind.
func TestNodeIsKilled(t *testing.T) {
	p := start(t, "troupe", command(t, "launch", with(endless, "layout.pipeline=3"), "--nodes", "3")...)
	p.await("step 10/")
	nodes := children(t, p.cmd.Process.Pid)
	if len(nodes) != 3 {
		t.Fatalf("%d processes", len(nodes))
	}
	p.strike(2, kill)
	p.fails(1, "troupe: node 2 failed in train step ", "has ended: signal: killed")
	gone(t, nodes)
}

// TestLauncherIsKilled: nodes end by themselves when nobody coordinates them any more.
func TestLauncherIsKilled(t *testing.T) {
	p := start(t, "troupe", command(t, "launch", with(endless, "layout.data=2", "supervisor.suspect=10"), "--nodes", "2")...)
	p.await("step 10/")
	nodes := children(t, p.cmd.Process.Pid)
	if len(nodes) != 2 {
		t.Fatalf("%d processes", len(nodes))
	}
	p.signal(kill)
	if code := p.end(); code != -1 {
		t.Errorf("exit status %d", code)
	}
	gone(t, nodes)
}

// TestNodesFromElsewhere: nodes that others start join by address and token. Whoever has a wrong one is refused on both
// sides, before the run and in its middle, and disturbs nothing. When the launcher is killed the node says so.
func TestNodesFromElsewhere(t *testing.T) {
	p := start(t, "troupe", command(t, "launch", with(endless, "layout.pipeline=2"), "--nodes", "2", "--external")...)
	fields := strings.Fields(p.await("start node 2: TROUPE_TOKEN="))
	token, address := fields[3], fields[slices.Index(fields, "--join")+1]
	join := func(token string) *process {
		t.Setenv("TROUPE_TOKEN", strings.TrimPrefix(token, "TROUPE_TOKEN="))
		return start(t, "troupe", "node", "--join", address, "--wait", "20s")
	}
	join("small.GUESSED").fails(1, address, "refused: wrong token")
	p.await("refused a node from 127.0.0.1:", "wrong token")
	one, two := join(token), join(token)
	p.await("step 3/")
	join("small.GUESSED").fails(1, address, "refused: wrong token")
	p.await("refused a node from 127.0.0.1:", "wrong token")
	p.await("step ")
	p.signal(interrupt)
	if code := p.end(); code != 0 {
		t.Errorf("exit status %d of the launcher", code)
	}
	for _, node := range []*process{one, two} {
		if code := node.end(); code != 0 || len(node.said) > 0 {
			t.Errorf("exit status %d of a node, %q", code, node.said)
		}
	}
}

// TestWrongNodesInOneProcess: the same in one process, with errors instead of lines.
func TestWrongNodesInOneProcess(t *testing.T) {
	want := train(t, []string{"layout.pipeline=2"})
	got, ends, err := company(context.Background(), t, []string{"layout.pipeline=2"}, supervisor.Cluster{
		Nodes: 2, Listen: "127.0.0.1:0",
		Spawn: func(ctx context.Context, number int, address, token string, _ func(error)) error {
			for _, wrong := range []string{"small.GUESSED", "other" + strings.TrimPrefix(token, "small")} {
				err := supervisor.Serve(ctx, supervisor.NodeOptions{Join: address, Token: wrong, Wait: patience, Log: &discard{}})
				if !errors.Is(err, actors.ErrWrongToken) {
					t.Errorf("token %q: %v", wrong, err)
				}
			}
			return nil
		},
	})
	if err != nil || slices.ContainsFunc(ends, func(err error) bool { return err != nil }) {
		t.Fatal(err, ends)
	}
	same(t, "a run with uninvited guests", got, want)
}
