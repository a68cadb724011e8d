package messages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
)

const (
	// Version of the frames and of the control messages. Nodes of different versions do not work together.
	Version = 3
	// MaxHeader is the most bytes of a header, MaxData the most of the data of one frame.
	MaxHeader = 4 << 10
	MaxData   = 512 << 10
	// MaxFrame is the most bytes of a frame.
	MaxFrame = prefix + MaxHeader + align + MaxData
	// MaxTotal is the most bytes of a payload.
	MaxTotal = 1 << 40

	// maxShares is the most bytes of the shares in the name of a round.
	maxShares = 2 << 10

	// maxCount is the most of every counter in the name of a message.
	maxCount = 1 << 40
	prefix   = 8
	align    = 8
)

// ErrFrame is in the chain of every error of DecodeFrame.
var ErrFrame = errors.New("not a frame")

// FrameError says what is wrong with a frame.
type FrameError struct {
	// Kind is one of a few fixed phrases, fit for counting; Detail has the numbers.
	Kind, Detail string
}

func (e *FrameError) Error() string {
	if e.Detail == "" {
		return "not a frame: " + e.Kind
	}
	return "not a frame: " + e.Kind + ": " + e.Detail
}

func (e *FrameError) Unwrap() error { return ErrFrame }

func bad(kind, format string, args ...any) error {
	return &FrameError{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// Frame is a decoded frame. Data is a view of the bytes that were decoded.
type Frame struct {
	Header *Header
	Data   []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendFrame appends the frame of a header and its data to b. The data starts at a multiple of 8
// bytes from the start of the frame. It is an error if header or data are over their limits.
func AppendFrame(b []byte, h *Header, data []byte) ([]byte, error) {
	start := len(b)
	b = append(b, Version, 0, 0, 0, 0, 0, 0, 0)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, h)
	if err != nil {
		return b[:start], fmt.Errorf("messages: header: %w", err)
	}
	n := len(b) - start - prefix
	if n > MaxHeader {
		return b[:start], fmt.Errorf("messages: a header of %d bytes; the most is %d", n, MaxHeader)
	}
	if len(data) > MaxData {
		return b[:start], fmt.Errorf("messages: a chunk of %d bytes; the most is %d", len(data), MaxData)
	}
	for (len(b)-start)%align != 0 {
		b = append(b, 0)
	}
	b = append(b, data...)
	frame := b[start:]
	binary.LittleEndian.PutUint16(frame[2:], uint16(n))
	binary.LittleEndian.PutUint32(frame[4:], checksum(frame))
	return b, nil
}

// checksum covers everything but its own four bytes.
func checksum(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:4], castagnoli), castagnoli, frame[prefix:])
}

// DecodeFrame checks and decodes a frame. It keeps no reference to b but for Frame.Data.
func DecodeFrame(b []byte) (Frame, error) {
	if len(b) < prefix {
		return Frame{}, bad("too short", "%d bytes; the least is %d", len(b), prefix)
	}
	if len(b) > MaxFrame {
		return Frame{}, bad("too long", "%d bytes; the most is %d", len(b), MaxFrame)
	}
	if b[0] != Version || b[1] != 0 {
		return Frame{}, bad("unknown version", "%d.%d; this is %d.0", b[0], b[1], Version)
	}
	n := int(binary.LittleEndian.Uint16(b[2:]))
	if n > MaxHeader {
		return Frame{}, bad("header too long", "%d bytes; the most is %d", n, MaxHeader)
	}
	data := (prefix + n + align - 1) / align * align
	if data > len(b) {
		return Frame{}, bad("cut short", "%d bytes; the header alone ends at %d", len(b), data)
	}
	if want, got := binary.LittleEndian.Uint32(b[4:]), checksum(b); want != got {
		return Frame{}, bad("checksum differs", "stated %08x, computed %08x", want, got)
	}
	for _, x := range b[prefix+n : data] {
		if x != 0 {
			return Frame{}, bad("padding is not zero", "byte %d", x)
		}
	}
	h := &Header{}
	if err := (proto.UnmarshalOptions{RecursionLimit: 8}).Unmarshal(b[prefix:prefix+n], h); err != nil {
		return Frame{}, bad("header does not decode", "%v", err)
	}
	f := Frame{Header: h, Data: b[data:]}
	if err := f.check(); err != nil {
		return Frame{}, err
	}
	return f, nil
}

// check is what a frame must satisfy beyond its encoding.
func (f Frame) check() error {
	if len(f.Header.ProtoReflect().GetUnknown()) > 0 {
		return bad("unknown field", "in the header")
	}
	if c := f.Header.GetChunk(); c != nil {
		return c.check(len(f.Data))
	}
	if len(f.Data) > 0 {
		return bad("data out of place", "%d bytes after a header that is no chunk", len(f.Data))
	}
	switch body := f.Header.Body.(type) {
	case *Header_Acknowledgement:
		if body.Acknowledgement.Next == 0 {
			return bad("field out of range", "acknowledgement of sequence 0")
		}
		return body.Acknowledgement.Edge.check()
	case *Header_Probe:
		return body.Probe.Edge.check()
	case *Header_Ready:
		return checkID("actor", body.Ready.Actor)
	}
	return bad("empty header", "")
}

func (c *Chunk) check(data int) error {
	n := c.Name
	if n == nil || n.Round == nil || n.Value == nil {
		return bad("field missing", "a chunk without the name of its message")
	}
	if err := checkID("sender", n.From); err != nil {
		return err
	}
	if err := checkID("receiver", n.To); err != nil {
		return err
	}
	if err := n.Round.check(); err != nil {
		return err
	}
	v := n.Value
	for _, x := range [...]int64{v.Index, v.Use, v.Lo, v.Hi} {
		if x < 0 || x > maxCount {
			return bad("field out of range", "%d in the name of a message", x)
		}
	}
	if v.Piece < -1 || v.Piece > maxCount || v.Kind > 255 || n.Incarnation > 1<<31-1 {
		return bad("field out of range", "piece %d, kind %d, incarnation %d", v.Piece, v.Kind, n.Incarnation)
	}
	switch c.Payload {
	case Payload_PAYLOAD_NONE:
		if c.Total != 0 || c.Dtype != 0 {
			return bad("field out of range", "%d bytes of no payload", c.Total)
		}
	case Payload_PAYLOAD_BLOB:
		if c.Dtype != 0 {
			return bad("field out of range", "a blob of element type %d", c.Dtype)
		}
	case Payload_PAYLOAD_TENSOR:
		if c.Dtype == 0 || c.Dtype > 255 {
			return bad("field out of range", "a tensor of element type %d", c.Dtype)
		}
	default:
		return bad("field out of range", "payload kind %d", c.Payload)
	}
	if c.Sequence == 0 || c.Epoch == 0 {
		return bad("field out of range", "sequence %d of epoch %d", c.Sequence, c.Epoch)
	}
	// 0 <= offset <= offset+data <= total, and only an empty payload has an empty chunk.
	if c.Total > MaxTotal || c.Offset > c.Total || uint64(data) > c.Total-c.Offset || data == 0 && c.Total > 0 {
		return bad("lengths do not add up", "%d bytes at %d of %d", data, c.Offset, c.Total)
	}
	return nil
}

func (e *Edge) check() error {
	if e == nil {
		return bad("field missing", "no edge")
	}
	if err := checkID("sender", e.From); err != nil {
		return err
	}
	return checkID("receiver", e.To)
}

// checkID bounds what may be the name of an actor; whether there is one is for others to say.
func checkID(what, id string) error {
	if id == "" || len(id) > 128 || !utf8.ValidString(id) {
		return bad("field out of range", "%s of %d bytes", what, len(id))
	}
	return nil
}
