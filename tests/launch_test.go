package tests

import (
	"context"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-train/troupe/supervisor"
)

// TestLaunch: the weights do not depend on the number of processes either.
func TestLaunch(t *testing.T) {
	set := []string{"model.dropout=0.1"}
	want := train(t, set)
	for _, c := range []struct {
		nodes  int
		layout []string
	}{
		{2, []string{"layout.pipeline=2", "layout.data=2"}},
		{2, []string{"layout.pipeline=3", "layout.schedule=gpipe"}},
		{4, []string{"layout.pipeline=4"}},
		{4, []string{"layout.pipeline=2", "layout.data=4"}},
		{4, []string{"layout.pipeline=1"}}, // more nodes than stages
	} {
		name := fmt.Sprint(c.nodes, " nodes ", strings.Join(c.layout, " "))
		t.Run(name, func(t *testing.T) {
			p := start(t, "troupe", command(t, "launch", with(set, c.layout...), "--json", "--nodes", fmt.Sprint(c.nodes))...)
			p.await("step 1/20")
			nodes := children(t, p.cmd.Process.Pid)
			if len(nodes) != c.nodes {
				t.Errorf("%d processes, want %d", len(nodes), c.nodes)
			}
			same(t, name, p.result(), want)
			gone(t, nodes)
			checkStart(t, p.said, c.nodes)
		})
	}
}

// checkStart: a quick start tells in the end that all are ready, and little before.
func checkStart(t *testing.T, said []string, nodes int) {
	t.Helper()
	last, lines := "", 0
	for _, line := range said {
		if strings.Contains(line, " nodes ") {
			last = line
			lines++
		}
	}
	if want := fmt.Sprintf("%d/%d nodes ready", nodes, nodes); last != want || lines > 5 {
		t.Errorf("%d lines on the start, the last is %q, want %q\n%s", lines, last, want, strings.Join(said, "\n"))
	}
}

// company launches over nodes that are goroutines of this process, and returns what they ended with. The Spawn of the
// cluster, if it is there, is called before a node is started.
func company(ctx context.Context, t testing.TB, set []string, c supervisor.Cluster, opts ...supervisor.Option) (*supervisor.Result, []error, error) {
	t.Helper()
	var all sync.WaitGroup
	ends := make([]error, c.Nodes)
	before := c.Spawn
	c.Spawn = func(ctx context.Context, number int, address, token string, ended func(error)) error {
		if before != nil {
			if err := before(ctx, number, address, token, ended); err != nil {
				return err
			}
		}
		all.Go(func() {
			ends[number-1] = supervisor.Serve(context.Background(), supervisor.NodeOptions{
				Join: address, Token: token, Listen: "127.0.0.1:0", Number: number, Wait: patience, Log: &discard{},
			})
		})
		return nil
	}
	r, err := supervisor.Launch(ctx, job(t, set...), c, opts...)
	all.Wait()
	return r, ends, err
}

type discard struct{}

func (*discard) Write(b []byte) (int, error) { return len(b), nil }

var launches = flag.Int("launches", 10, "how often TestSamePort launches")

// TestSamePort launches again and again at one port.
func TestSamePort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	set := []string{"train.steps=1", "train.evaluate.every=0", "layout.pipeline=2"}
	want := train(t, set)
	n := *launches
	if testing.Short() {
		n = 2
	}
	for i := range n {
		got, ends, err := company(context.Background(), t, set, supervisor.Cluster{Nodes: 2, Listen: address})
		if err != nil || slices.ContainsFunc(ends, func(err error) bool { return err != nil }) {
			t.Fatalf("launch %d: %v, nodes %v", i+1, err, ends)
		}
		same(t, fmt.Sprint("launch ", i+1), got, want)
	}
}

// TestStartHasADeadline: a node that does not come is named, and waited for only so long.
func TestStartHasADeadline(t *testing.T) {
	began := time.Now()
	p := start(t, "troupe", command(t, "launch", []string{"supervisor.join=2.2"}, "--nodes", "2", "--external")...)
	p.await("start node 1: TROUPE_TOKEN=small.")
	p.await("0/2 nodes joined; waiting for nodes 1, 2 since 1 s")
	p.fails(1, "gave up: 0/2 nodes joined; waiting for nodes 1, 2 since")
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it took %s to give up", took)
	}
}
