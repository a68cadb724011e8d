package actors

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// stream is a run of two nodes in which stage 0 sends tensors to stage 1, with a few on their way.
func stream(b *testing.B, bytes int) (*company, chan struct{}) {
	const ahead = 4
	got := make(chan struct{}, 1024)
	held := device.NewAccount("sent", 0)
	p := tensor(b, held, bytes/4, 1)
	var sent atomic.Int64
	send := func() machine.Effect {
		m := machine.Message{Name: named(stage0, stage1, 1, activation(int(sent.Add(1)))), Payload: p}
		return machine.Send{Message: &m}
	}
	x := gatherCompany(b, 2, twoNodes(), func(node int, c *cast) {
		if node == 0 {
			c.play(plan.Trainer, discard, nil)
			c.play(stage0, func(e machine.Event) []machine.Effect {
				if _, ok := e.(machine.Begin); !ok {
					return []machine.Effect{send()}
				}
				var out []machine.Effect
				for range ahead {
					out = append(out, send())
				}
				return out
			}, nil)
			return
		}
		c.play(stage1, func(e machine.Event) []machine.Effect {
			m := e.(machine.Arrived).Message
			got <- struct{}{}
			ask := machine.Message{Name: named(stage1, stage0, 1, m.Name.Value)}
			return []machine.Effect{machine.Drop{Payload: m.Payload}, machine.Send{Message: &ask}}
		}, nil)
	})
	if err := x.nodes[0].Send(stage0, machine.Begin{}); err != nil {
		b.Fatal(err)
	}
	return x, got
}

// BenchmarkTensors measures tensors from one node to another, over two servers and a route.
func BenchmarkTensors(b *testing.B) {
	for _, bytes := range []int{64 << 10, 1 << 20, 8 << 20} {
		b.Run(fmt.Sprintf("%dKiB", bytes>>10), func(b *testing.B) {
			x, got := stream(b, bytes)
			b.SetBytes(int64(bytes))
			b.ResetTimer()
			for range b.N {
				<-got
			}
			_, again := x.nodes[0].transport.linksOf(stage0)
			b.ReportMetric(float64(again)/float64(b.N), "resent/op")
		})
	}
}

// BenchmarkControlBesideData measures the round trip of a question over the control account while
// tensors go over the same pair of servers.
func BenchmarkControlBesideData(b *testing.B) {
	x, got := stream(b, 1<<20)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-got:
			case <-stop:
				return
			}
		}
	}()
	defer func() { close(stop); <-done }()
	m := x.members[0]
	hello := &messages.Control{Body: &messages.Control_Hello{Hello: &messages.Hello{Version: "v1"}}}
	b.ResetTimer()
	for range b.N {
		if _, err := m.control.ask(b.Context(), helloSubject, hello); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLocalMessage measures a message from machine to machine within a node.
func BenchmarkLocalMessage(b *testing.B) {
	c := newCast(b, Options{Placement: place(stage0, stage1)})
	done := make(chan struct{})
	n := 0
	c.play(stage1, func(machine.Event) []machine.Effect {
		if n++; n == b.N {
			close(done)
		}
		return nil
	}, nil)
	c.play(stage0, func(e machine.Event) []machine.Effect {
		m := machine.Message{Name: named(stage0, stage1, 1, activation(0))}
		out := make([]machine.Effect, 0, 64)
		for range min(64, e.(machine.PeerIs).Incarnation) {
			out = append(out, machine.Send{Message: &m})
		}
		return out
	}, nil)
	b.ResetTimer()
	for left := b.N; left > 0; left -= 64 {
		if err := c.Send(stage0, machine.PeerIs{Incarnation: left}); err != nil {
			b.Fatal(err)
		}
	}
	<-done
}
