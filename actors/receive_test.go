package actors

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// ear is the receiving side of a transport without a network: frames go in by hand.
type ear struct {
	*cast
	transport *transport
	shell     *shell
	account   *device.Account
	got       chan machine.Message
	failed    chan machine.Failed
	settled   chan struct{}
}

func newEar(t testing.TB, limit int64) *ear {
	e := &ear{got: make(chan machine.Message, 100), failed: make(chan machine.Failed, 100), settled: make(chan struct{})}
	e.cast = newCast(t, Options{Placement: place(plan.Trainer, stage1), MaxMessage: 1 << 20})
	e.play(plan.Trainer, func(ev machine.Event) []machine.Effect {
		e.failed <- ev.(machine.Failed)
		return nil
	}, nil)
	e.account = device.NewAccount(string(stage1), limit)
	s := newFakeStream()
	e.streams = append(e.streams, s)
	m := &fakeMachine{id: stage1, handle: func(ev machine.Event) []machine.Effect {
		switch ev := ev.(type) {
		case machine.Arrived:
			e.got <- ev.Message
		case machine.Begin:
			e.settled <- struct{}{}
		}
		return nil
	}}
	if err := e.Spawn(Actor{Machine: m, Executor: &fakeExecutor{}, Device: fakeDevice{}, Account: e.account, Stream: s}); err != nil {
		t.Fatal(err)
	}
	e.shell = e.local(stage1)
	e.directory.place(stage0, 1) // on another node
	e.transport = &transport{
		node: e.Node, wake: make(chan struct{}, 1),
		outs: map[edge]*outlet{}, ins: map[edge]*inlet{}, counts: map[string]uint64{},
	}
	return e
}

// settle waits until the machine has handled what came so far.
func (e *ear) settle() {
	if err := e.Send(stage1, machine.Begin{}); err != nil {
		e.t.Fatal(err)
	}
	<-e.settled
}

func (e *ear) hear(h *messages.Header, data string) {
	b, err := messages.AppendFrame(nil, h, []byte(data))
	if err != nil {
		e.t.Fatal(err)
	}
	e.transport.receive(e.shell, &nats.Msg{Data: b})
}

// piece is a chunk of a message from stage 0 to stage 1 of incarnation 0, changed by change.
func piece(sequence, offset, total uint64, change func(*messages.Chunk)) *messages.Header {
	c := &messages.Chunk{
		Name:    protoName(named(stage0, stage1, 1, activation(0))),
		Payload: messages.Payload_PAYLOAD_BLOB, Sequence: sequence, Offset: offset, Total: total, Epoch: epochOf(0, 0),
	}
	if change != nil {
		change(c)
	}
	return &messages.Header{Body: &messages.Header_Chunk{Chunk: c}}
}

func asTensor(dt device.DType) func(*messages.Chunk) {
	return func(c *messages.Chunk) { c.Payload, c.Dtype = messages.Payload_PAYLOAD_TENSOR, uint32(dt) }
}

func TestFramesOutOfPlaceAreRefused(t *testing.T) {
	edgeOf := func(from, to string) *messages.Edge { return &messages.Edge{From: from, To: to} }
	for _, test := range []struct {
		name string
		h    *messages.Header
		says string
	}{
		{"another receiver", piece(1, 0, 2, func(c *messages.Chunk) { c.Name.To = "stage.p2.d0" }), `is for "stage.p2.d0"`},
		{"unknown sender", piece(1, 0, 2, func(c *messages.Chunk) { c.Name.From = "stage.p9.d9" }), `"stage.p9.d9" is not an actor of another node`},
		{"local sender", piece(1, 0, 2, func(c *messages.Chunk) { c.Name.From = "trainer" }), `"trainer" is not an actor of another node`},
		{"another job", piece(1, 0, 2, func(c *messages.Chunk) { c.Name.Job = "other" }), `job "other"`},
		{"epoch", piece(1, 0, 2, func(c *messages.Chunk) { c.Epoch = 7 }), "epoch 0x7 of incarnation 0"},
		{"too big", piece(1, 0, 2<<20, nil), "a message of 2097152 bytes; the most is 1048576"},
		{"begins in the middle", piece(1, 3, 9, nil), "begins at byte 3"},
		{"element type", piece(1, 0, 2, func(c *messages.Chunk) { c.Payload, c.Dtype = messages.Payload_PAYLOAD_TENSOR, 99 }), "element type 99"},
		{"half an element", piece(1, 0, 2, asTensor(device.F32)), "a tensor of 2 bytes"},
		{
			"acknowledgement of another's",
			&messages.Header{Body: &messages.Header_Acknowledgement{Acknowledgement: &messages.Acknowledgement{Edge: edgeOf("stage.p0.d0", "x"), Next: 1}}},
			`acknowledges what "stage.p0.d0" sent`,
		},
		{
			"acknowledgement of nothing",
			&messages.Header{Body: &messages.Header_Acknowledgement{Acknowledgement: &messages.Acknowledgement{Edge: edgeOf("stage.p1.d0", "x"), Next: 1}}},
			"never sent to x",
		},
		{"probe for another", &messages.Header{Body: &messages.Header_Probe{Probe: &messages.Probe{Edge: edgeOf("stage.p0.d0", "x")}}}, `is for "x"`},
		{"answer without a question", readyHeader(1, stage1, true), "a question"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEar(t, 0)
			data := ""
			if test.h.GetChunk() != nil {
				data = "ab"
			}
			e.hear(test.h, data)
			if n := e.transport.counts["refused frame: misplaced"]; n != 1 {
				t.Fatalf("counts %v", e.transport.counts)
			}
			if log := strings.Join(e.lines.get(), "\n"); !strings.Contains(log, test.says) {
				t.Fatalf("%q is not in %q", test.says, log)
			}
			// A legal message still comes through. It takes the number of what was refused after the link
			// had judged it.
			e.hear(piece(1, 0, 2, nil), "ok")
			e.hear(piece(2, 0, 2, nil), "ok")
			if m := receive(t, e.got, "message"); string(m.Payload.(machine.Blob)) != "ok" {
				t.Fatalf("message %+v", m)
			}
		})
	}
}

func TestPartsAreAssembledInPlace(t *testing.T) {
	e := newEar(t, 0)
	e.hear(piece(1, 0, 12, asTensor(device.F32)), "abcd")
	e.hear(piece(2, 4, 12, asTensor(device.F32)), "efg")
	e.hear(piece(2, 4, 12, asTensor(device.F32)), "efg") // again
	e.hear(piece(4, 9, 12, asTensor(device.F32)), "jkl") // before its time
	if len(e.got) > 0 {
		t.Fatal("half a message was delivered")
	}
	e.hear(piece(3, 7, 12, asTensor(device.F32)), "hi")
	e.hear(piece(4, 9, 12, asTensor(device.F32)), "jkl")
	m := receive(t, e.got, "message")
	p := m.Payload.(machine.Tensor)
	if string(p.HostBytes()) != "abcdefghijkl" || p.Len != 3 || p.Type != device.F32 || m.Name != named(stage0, stage1, 1, activation(0)) {
		t.Fatalf("message %v: %q", m.Name, p.HostBytes())
	}
	if e.account.HeldFor(device.Messages) != 12 {
		t.Fatal("the payload is not on the receiver's account")
	}
	p.Release()
	if len(e.transport.counts) > 0 {
		t.Fatalf("counts %v", e.transport.counts)
	}
}

// TestSenderThatDiesInTheMiddle: what a new life sends is taken, what the old one began is given back, and
// what of it is still on its way is refused.
func TestSenderThatDiesInTheMiddle(t *testing.T) {
	e := newEar(t, 0)
	next := func(c *messages.Chunk) {
		asTensor(device.F32)(c)
		c.Name.Incarnation, c.Epoch = 1, epochOf(1, 0)
	}
	e.hear(piece(1, 0, 12, asTensor(device.F32)), "abcd")
	e.hear(piece(1, 0, 8, next), "01234567")
	p := receive(t, e.got, "message").Payload.(machine.Tensor)
	if string(p.HostBytes()) != "01234567" || e.account.Held() != 8 {
		t.Fatalf("message %q, %d bytes held", p.HostBytes(), e.account.Held())
	}
	p.Release()
	e.hear(piece(2, 4, 12, asTensor(device.F32)), "efgh")
	if e.transport.counts[fencedFrames] != 1 || e.account.Held() != 0 {
		t.Fatalf("counts %v, log %q", e.transport.counts, e.lines.get())
	}
}

func TestNoRoomForAMessage(t *testing.T) {
	e := newEar(t, 10)
	e.hear(piece(1, 0, 12, asTensor(device.F32)), "abcd")
	e.hear(piece(2, 4, 12, asTensor(device.F32)), "efghijkl")
	f := receive(t, e.failed, "failure")
	if f.Actor != stage1 || !strings.Contains(f.Cause, "out of memory: stage.p1.d0 asked for 12 bytes for messages") || !strings.Contains(f.Op, "receive activation") {
		t.Fatalf("failure %+v", f)
	}
	// The link is not harmed by it.
	e.hear(piece(3, 0, 8, asTensor(device.F32)), "01234567")
	receive(t, e.got, "message").Payload.Release()
}

// FuzzReceive: no frame makes a transport panic, deliver half a message, or hold memory that it has no
// message for.
func FuzzReceive(f *testing.F) {
	add := func(h *messages.Header, data string) {
		b, err := messages.AppendFrame(nil, h, []byte(data))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add(piece(1, 0, 8, asTensor(device.F32)), "01234567")
	add(piece(1, 0, 12, asTensor(device.F64)), "0123")
	add(piece(1, 0, 4, nil), "0123")
	add(probe(edge{stage0, stage1}, epochOf(2, 0)), "")
	add(acknowledgement(edge{stage1, stage0}, grant{epoch: epochOf(0, 0), next: 1}), "")
	add(readyHeader(0, stage1, false), "")
	e := newEar(f, 0)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 8 { // let it through the first door
			b = append([]byte(nil), b...)
			table := crc32.MakeTable(crc32.Castagnoli)
			binary.LittleEndian.PutUint32(b[4:], crc32.Update(crc32.Checksum(b[:4], table), table, b[8:]))
		}
		e.transport.outs, e.transport.ins, e.transport.due = map[edge]*outlet{}, map[edge]*inlet{}, nil
		for range 2 {
			e.transport.receive(e.shell, &nats.Msg{Data: b})
		}
		for _, in := range e.transport.ins {
			in.parts.discard()
		}
		e.settle()
		for len(e.got) > 0 {
			if p := (<-e.got).Payload; p != nil {
				p.Release()
			}
		}
		if n := e.account.Held(); n != 0 {
			t.Fatalf("%d bytes are held", n)
		}
	})
}
