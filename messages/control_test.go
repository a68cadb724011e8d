package messages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// said are control messages of every kind.
func said() []*Control {
	round := &Round{Step: 3, Phase: 4}
	all := []*Control{
		{Body: &Control_Hello{Hello: &Hello{Node: -1, Name: "a", Version: "1"}}},
		{Body: &Control_Welcome{Welcome: &Welcome{Node: 1, Nodes: 3, Job: []byte("model: {}"), Options: map[string]string{"resume": "false"},
			HeartbeatNs: 1e8, Suspect: 5, Placement: []*Placement{{Actor: "stage.p0.d0", Node: 1}},
			Table: &Table{Version: 2, Lives: []*Incarnation{{Actor: "stage.p0.d0", Incarnation: 1, Node: -1, Round: round}}}}}},
		{Body: &Control_Heartbeat{Heartbeat: &Heartbeat{Node: 1, State: State_STATE_READY,
			Actors:   []*ActorStatus{{Actor: "stage.p0.d0", Wait: &Wait{Round: round, Op: "forward"}, Opened: round, Sent: []int64{1, 2, 3, 4, 5}}},
			Failures: []*Failure{{Actor: "stage.p0.d0", Round: round, Cause: "a panic"}}}}},
		{Body: &Control_Beat{Beat: &Beat{Phase: Phase_PHASE_RUNNING, Fenced: []string{"b"}, Strikes: &Strikes{Forgotten: 2, Faults: []uint32{0, 3}}}}},
		{Body: &Control_Reached{Reached: &Reached{Node: 1, Fault: 2, Count: 3}}},
		{Body: &Control_Verdict{Verdict: &Verdict{Strikes: true}}},
	}
	for i, c := range all {
		c.Job, c.Session, c.Sequence = "job", "a", uint64(i)+1
	}
	return all
}

func encoded(t testing.TB, c *Control) []byte {
	t.Helper()
	b, err := EncodeControl(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFlippedBitsOfControlAreFound flips every bit of every kind of control message in turn.
func TestFlippedBitsOfControlAreFound(t *testing.T) {
	for _, c := range said() {
		b := encoded(t, c)
		if got, err := DecodeControl(b); err != nil || !proto.Equal(got, c) {
			t.Fatalf("%v came as %v: %v", c, got, err)
		}
		for i := range 8 * len(b) {
			bent := bytes.Clone(b)
			bent[i/8] ^= 1 << (i % 8)
			if _, err := DecodeControl(bent); !errors.Is(err, ErrFrame) {
				t.Fatalf("bit %d of %v flipped: %v", i, c, err)
			}
		}
		for n := range b {
			if _, err := DecodeControl(b[:n]); !errors.Is(err, ErrFrame) {
				t.Fatalf("%v cut to %d bytes: %v", c, n, err)
			}
		}
	}
}

func TestBadControl(t *testing.T) {
	for _, test := range []struct {
		name string
		of   int // of said
		bend func(*Control)
		kind string
	}{
		{"no job", 0, func(c *Control) { c.Job = "" }, "field missing"},
		{"no session", 0, func(c *Control) { c.Session = "" }, "field missing"},
		{"long session", 0, func(c *Control) { c.Session = strings.Repeat("x", 257) }, "field out of range"},
		{"sequence 0", 0, func(c *Control) { c.Sequence = 0 }, "field out of range"},
		{"no body", 0, func(c *Control) { c.Body = nil }, "control message without a body"},
		{"hello of no node", 0, func(c *Control) { c.GetHello().Node = -2 }, "field out of range"},
		{"hello of a long name", 0, func(c *Control) { c.GetHello().Name = strings.Repeat("x", 257) }, "field out of range"},
		{"welcome without heartbeats", 1, func(c *Control) { c.GetWelcome().HeartbeatNs = 0 }, "field out of range"},
		{"actor without a name", 1, func(c *Control) { c.GetWelcome().Placement[0].Actor = "" }, "field out of range"},
		{"life on no node", 1, func(c *Control) { c.GetWelcome().Table.Lives[0].Node = -2 }, "field out of range"},
		{"life too high", 1, func(c *Control) { c.GetWelcome().Table.Lives[0].Incarnation = 1 << 31 }, "field out of range"},
		{"heartbeat of the coordinator", 2, func(c *Control) { c.GetHeartbeat().Node = 0 }, "field out of range"},
		{"state unknown", 2, func(c *Control) { c.GetHeartbeat().State = 5 }, "field out of range"},
		{"round before the first", 2, func(c *Control) { c.GetHeartbeat().Actors[0].Wait.Round.Step = -1 }, "field out of range"},
		{"opened in no phase", 2, func(c *Control) { c.GetHeartbeat().Actors[0].Opened.Phase = 256 }, "field out of range"},
		{"failure of a long name", 2, func(c *Control) { c.GetHeartbeat().Failures[0].Actor = strings.Repeat("x", 257) }, "field out of range"},
		{"phase unknown", 3, func(c *Control) { c.GetBeat().Phase = 4 }, "field out of range"},
		{"strike of no fault", 3, func(c *Control) { c.GetBeat().Strikes.Faults[1] = 1<<20 + 1 }, "field out of range"},
		{"question of the coordinator", 4, func(c *Control) { c.GetReached().Node = 0 }, "field out of range"},
		{"question of no fault", 4, func(c *Control) { c.GetReached().Fault = 1<<20 + 1 }, "field out of range"},
		{"a field from elsewhere, deep inside", 2, func(c *Control) {
			c.GetHeartbeat().Actors[0].Wait.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
		}, "unknown field"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := said()[test.of]
			test.bend(c)
			_, err := DecodeControl(encoded(t, c))
			var f *FrameError
			if !errors.As(err, &f) || f.Kind != test.kind {
				t.Fatalf("error %v, want kind %q", err, test.kind)
			}
		})
	}
}

// FuzzDecodeControl: no bytes make DecodeControl panic, and what it accepts, it accepts again.
func FuzzDecodeControl(f *testing.F) {
	for _, c := range said() {
		f.Add(encoded(f, c))
	}
	f.Add([]byte{Version})
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(b []byte) {
			c, err := DecodeControl(b)
			if err != nil {
				if !errors.Is(err, ErrFrame) {
					t.Fatalf("error %v is not an ErrFrame", err)
				}
				return
			}
			if again, err := DecodeControl(encoded(t, c)); err != nil || !proto.Equal(again, c) {
				t.Fatalf("what was accepted is not accepted again: %v", err)
			}
		}
		check(b)
		if len(b) >= prefix {
			b = bytes.Clone(b)
			binary.LittleEndian.PutUint32(b[4:], checksum(b))
			check(b)
		}
	})
}
