package messages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func chunkOf(total, offset, sequence uint64) *Chunk {
	return &Chunk{
		Name: &Name{
			Job: "job", Round: &Round{Step: 7, Phase: 3}, Incarnation: 1, From: "stage.p0.d0", To: "stage.p1.d0",
			Value: &Value{Kind: 4, Index: 1, Lo: 2, Piece: -1},
		},
		Payload: Payload_PAYLOAD_TENSOR, Dtype: 1, Total: total, Offset: offset, Sequence: sequence, Epoch: 2,
	}
}

func header(c *Chunk) *Header { return &Header{Body: &Header_Chunk{Chunk: c}} }

func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 1, 1000).Draw(t, "data")
		before := uint64(rapid.IntRange(0, 1000).Draw(t, "before"))
		after := uint64(rapid.IntRange(0, 1000).Draw(t, "after"))
		c := chunkOf(before+uint64(len(data))+after, before, 1)
		c.Name.From = rapid.StringMatching(`[a-z.0-9]{1,40}`).Draw(t, "from")
		head := rapid.SliceOfN(rapid.Byte(), 0, 17).Draw(t, "head")
		b, err := AppendFrame(head, header(c), data)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(b, head) {
			t.Fatal("what was in the buffer is gone")
		}
		f, err := DecodeFrame(b[len(head):])
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(f.Header.GetChunk(), c) || !bytes.Equal(f.Data, data) {
			t.Fatalf("decoded %v", f.Header)
		}
		if at := len(b) - len(head) - len(f.Data); at%align != 0 {
			t.Fatalf("the data starts at byte %d of the frame", at)
		}
		if &f.Data[0] != &b[len(b)-len(data)] {
			t.Fatal("the data was copied")
		}
	})
}

// TestFlippedBitsAreFound flips every bit of a frame in turn.
func TestFlippedBitsAreFound(t *testing.T) {
	b, err := AppendFrame(nil, header(chunkOf(5, 0, 1)), []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(b) {
		c := bytes.Clone(b)
		c[i/8] ^= 1 << (i % 8)
		if _, err := DecodeFrame(c); !errors.Is(err, ErrFrame) {
			t.Fatalf("bit %d flipped: %v", i, err)
		}
	}
	for n := range b {
		if _, err := DecodeFrame(b[:n]); !errors.Is(err, ErrFrame) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

// seal makes a frame of bytes that are not a legal header, with a checksum that is right.
func seal(version byte, length int, rest ...byte) []byte {
	b := append([]byte{version, 0, 0, 0, 0, 0, 0, 0}, rest...)
	binary.LittleEndian.PutUint16(b[2:], uint16(length))
	binary.LittleEndian.PutUint32(b[4:], checksum(b))
	return b
}

func TestBadFrames(t *testing.T) {
	frame := func(change func(*Chunk), data string) []byte {
		c := chunkOf(5, 0, 1)
		change(c)
		b, err := AppendFrame(nil, header(c), []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	other := func(h *Header, data string) []byte {
		b, err := AppendFrame(nil, h, []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	edge := &Edge{From: "a", To: "b"}
	for _, test := range []struct {
		name  string
		frame []byte
		kind  string
	}{
		{"nothing", nil, "too short"},
		{"too long", make([]byte, MaxFrame+1), "too long"},
		{"version", seal(9, 0), "unknown version"},
		{"long header", seal(Version, MaxHeader+1), "header too long"},
		{"header behind the end", seal(Version, 100), "cut short"},
		{"no header", seal(Version, 0), "empty header"},
		{"not protobuf", seal(Version, 2, 0xff, 0xff, 0, 0, 0, 0, 0, 0), "header does not decode"},
		{"padding", seal(Version, 0xa, 10, 8, 8, 1, 18, 1, 'a', 24, 1, 0, 1, 0, 0, 0, 0, 0), "padding is not zero"},
		{"unknown field", seal(Version, 3, 0xf8, 0x3f, 1, 0, 0, 0, 0, 0), "unknown field"},
		{"no name", frame(func(c *Chunk) { c.Name = nil }, "hello"), "field missing"},
		{"no value", frame(func(c *Chunk) { c.Name.Value = nil }, "hello"), "field missing"},
		{"no round", frame(func(c *Chunk) { c.Name.Round = nil }, "hello"), "field missing"},
		{"no sender", frame(func(c *Chunk) { c.Name.From = "" }, "hello"), "field out of range"},
		{"long receiver", frame(func(c *Chunk) { c.Name.To = strings.Repeat("x", 129) }, "hello"), "field out of range"},
		{"negative step", frame(func(c *Chunk) { c.Name.Round.Step = -1 }, "hello"), "field out of range"},
		{"huge index", frame(func(c *Chunk) { c.Name.Value.Index = 1 << 62 }, "hello"), "field out of range"},
		{"piece", frame(func(c *Chunk) { c.Name.Value.Piece = -2 }, "hello"), "field out of range"},
		{"kind", frame(func(c *Chunk) { c.Name.Value.Kind = 256 }, "hello"), "field out of range"},
		{"payload kind", frame(func(c *Chunk) { c.Payload = 9 }, "hello"), "field out of range"},
		{"typed blob", frame(func(c *Chunk) { c.Payload = Payload_PAYLOAD_BLOB }, "hello"), "field out of range"},
		{"bytes of nothing", frame(func(c *Chunk) { c.Payload, c.Dtype = Payload_PAYLOAD_NONE, 0 }, "hello"), "field out of range"},
		{"untyped tensor", frame(func(c *Chunk) { c.Dtype = 0 }, "hello"), "field out of range"},
		{"sequence 0", frame(func(c *Chunk) { c.Sequence = 0 }, "hello"), "field out of range"},
		{"epoch 0", frame(func(c *Chunk) { c.Epoch = 0 }, "hello"), "field out of range"},
		{"more than all", frame(func(*Chunk) {}, "hello!"), "lengths do not add up"},
		{"behind the end", frame(func(c *Chunk) { c.Offset = 1 << 63 }, "hello"), "lengths do not add up"},
		{"huge", frame(func(c *Chunk) { c.Total = 1 << 50 }, "hello"), "lengths do not add up"},
		{"empty chunk", frame(func(*Chunk) {}, ""), "lengths do not add up"},
		{"no edge", other(&Header{Body: &Header_Probe{Probe: &Probe{}}}, ""), "field missing"},
		{"acknowledgement of nothing", other(&Header{Body: &Header_Acknowledgement{Acknowledgement: &Acknowledgement{Edge: edge}}}, ""), "field out of range"},
		{"data behind a probe", other(&Header{Body: &Header_Probe{Probe: &Probe{Edge: edge}}}, "x"), "data out of place"},
		{"ready without an actor", other(&Header{Body: &Header_Ready{Ready: &Ready{}}}, ""), "field out of range"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := DecodeFrame(test.frame)
			var f *FrameError
			if !errors.As(err, &f) || !errors.Is(err, ErrFrame) || f.Kind != test.kind {
				t.Fatalf("error %v, want kind %q", err, test.kind)
			}
		})
	}
}

func TestAppendFrameLimits(t *testing.T) {
	b := []byte("before")
	c := chunkOf(MaxData+1, 0, 1)
	if got, err := AppendFrame(b, header(c), make([]byte, MaxData+1)); err == nil || !bytes.Equal(got, b) {
		t.Fatalf("error %v, buffer of %d bytes", err, len(got))
	}
	c.Name.Job = strings.Repeat("x", MaxHeader)
	if got, err := AppendFrame(b, header(c), nil); err == nil || !bytes.Equal(got, b) {
		t.Fatalf("error %v, buffer of %d bytes", err, len(got))
	}
}

// FuzzDecodeFrame: no bytes make DecodeFrame panic, what it accepts is legal and is what AppendFrame
// makes of it, and random bytes with a right checksum get no further than random bytes.
func FuzzDecodeFrame(f *testing.F) {
	legal, err := AppendFrame(nil, header(chunkOf(9, 4, 3)), []byte("hello"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(legal)
	f.Add(seal(Version, 0))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(b []byte) {
			frame, err := DecodeFrame(b)
			if err != nil {
				if !errors.Is(err, ErrFrame) {
					t.Fatalf("error %v is not an ErrFrame", err)
				}
				return
			}
			if c := frame.Header.GetChunk(); c != nil && (c.Offset+uint64(len(frame.Data)) > c.Total || c.Total > MaxTotal) {
				t.Fatalf("accepted %d bytes at %d of %d", len(frame.Data), c.Offset, c.Total)
			}
			again, err := AppendFrame(nil, frame.Header, frame.Data)
			if err != nil {
				t.Fatal(err)
			}
			if f, err := DecodeFrame(again); err != nil || !proto.Equal(f.Header, frame.Header) {
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

// TestDecodeAllocatesLittle: what a frame claims is not what is allocated.
func TestDecodeAllocatesLittle(t *testing.T) {
	c := chunkOf(MaxTotal, 0, 1)
	b, err := AppendFrame(nil, header(c), make([]byte, MaxData))
	if err != nil {
		t.Fatal(err)
	}
	const times = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		if _, err := DecodeFrame(b); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / times; n > 4*MaxHeader {
		t.Fatalf("decoding a frame allocates %d bytes", n)
	}
}
