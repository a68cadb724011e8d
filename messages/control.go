package messages

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// MaxControl is the most bytes of a control message. A Welcome carries the job file.
	MaxControl = 1 << 20
	// maxNodes is more than a run can have, maxWord the most bytes of a name.
	maxNodes = 1 << 20
	maxWord  = 256
	// maxFaults is more than a list of faults has.
	maxFaults = 1 << 20
)

// EncodeControl encodes a control message behind a version and a checksum. It must name its job, session and sequence.
func EncodeControl(c *Control) ([]byte, error) {
	b, err := proto.MarshalOptions{}.MarshalAppend([]byte{Version, 0, 0, 0, 0, 0, 0, 0}, c)
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	if len(b) > MaxControl {
		return nil, fmt.Errorf("messages: a control message of %d bytes; the most is %d", len(b), MaxControl)
	}
	binary.LittleEndian.PutUint32(b[4:], checksum(b))
	return b, nil
}

// DecodeControl checks and decodes a control message. Errors are FrameErrors.
func DecodeControl(b []byte) (*Control, error) {
	if len(b) < prefix || len(b) > MaxControl {
		return nil, bad("not a control message", "%d bytes; legal are %d to %d", len(b), prefix, MaxControl)
	}
	if b[0] != Version || b[1] != 0 || b[2] != 0 || b[3] != 0 {
		return nil, bad("unknown version", "% x; this is %d", b[:4], Version)
	}
	if want, got := binary.LittleEndian.Uint32(b[4:]), checksum(b); want != got {
		return nil, bad("checksum differs", "stated %08x, computed %08x", want, got)
	}
	c := &Control{}
	if err := (proto.UnmarshalOptions{RecursionLimit: 16}).Unmarshal(b[prefix:], c); err != nil {
		return nil, bad("control message does not decode", "%v", err)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	return c, nil
}

// check is what a control message must satisfy beyond its encoding.
func (c *Control) check() error {
	if unknown(c.ProtoReflect()) {
		return bad("unknown field", "in a control message")
	}
	if c.Sequence == 0 {
		return bad("field out of range", "sequence 0")
	}
	for what, word := range map[string]string{"job": c.Job, "session": c.Session} {
		if word == "" {
			return bad("field missing", "a control message without a %s", what)
		}
		if err := checkWord(what, word); err != nil {
			return err
		}
	}
	switch body := c.Body.(type) {
	case *Control_Hello:
		h := body.Hello
		if h.Node < -1 || h.Node > maxNodes || h.Origin > maxNodes {
			return bad("field out of range", "node %d, started as %d", h.Node, h.Origin)
		}
		return first(checkWord("name", h.Name), checkWord("version", h.Version), checkWord("address", h.Address))
	case *Control_Welcome:
		return body.Welcome.check()
	case *Control_Heartbeat:
		return body.Heartbeat.check()
	case *Control_Beat:
		if p := body.Beat.Phase; p <= Phase_PHASE_UNKNOWN || p > Phase_PHASE_STOPPING {
			return bad("field out of range", "phase %d", p)
		}
		return first(body.Beat.Table.check(), body.Beat.Strikes.check())
	case *Control_Reached:
		if r := body.Reached; r.Node == 0 || r.Node > maxNodes || r.Fault > maxFaults {
			return bad("field out of range", "node %d, fault %d", r.Node, r.Fault)
		}
		return nil
	case *Control_Verdict:
		return nil
	}
	return bad("control message without a body", "")
}

func (w *Welcome) check() error {
	if w.Node > maxNodes || w.Nodes > maxNodes {
		return bad("field out of range", "node %d of %d", w.Node, w.Nodes)
	}
	if w.Refusal == "" && (w.HeartbeatNs <= 0 || w.Suspect == 0) {
		return bad("field out of range", "%d heartbeats of %d ns", w.Suspect, w.HeartbeatNs)
	}
	if w.Room < Room_ROOM_NEVER || w.Room > Room_ROOM_LATER {
		return bad("field out of range", "room %d", w.Room)
	}
	for _, p := range w.Placement {
		if p.Node > maxNodes {
			return bad("field out of range", "an actor on node %d", p.Node)
		}
		if err := checkID("actor", p.Actor); err != nil {
			return err
		}
	}
	return w.Table.check()
}

func (h *Heartbeat) check() error {
	if h.Node == 0 || h.Node > maxNodes || h.State <= State_STATE_UNKNOWN || h.State > State_STATE_LEFT {
		return bad("field out of range", "node %d, state %d", h.Node, h.State)
	}
	if err := checkWord("name", h.Name); err != nil {
		return err
	}
	for _, a := range h.Actors {
		if a.Incarnation > 1<<31-1 {
			return bad("field out of range", "incarnation %d", a.Incarnation)
		}
		if err := first(checkID("actor", a.Actor), a.Opened.check(), a.Wait.GetRound().check()); err != nil {
			return err
		}
	}
	for _, f := range h.Failures {
		if f.Incarnation > 1<<31-1 {
			return bad("field out of range", "incarnation %d", f.Incarnation)
		}
		if err := first(checkWord("actor", f.Actor), checkWord("node", f.Node), f.Round.check()); err != nil {
			return err
		}
	}
	return nil
}

// check is fine with no table.
func (t *Table) check() error {
	for _, l := range t.GetLives() {
		if l.Node < -1 || l.Node > maxNodes || l.Incarnation > 1<<31-1 {
			return bad("field out of range", "node %d, incarnation %d", l.Node, l.Incarnation)
		}
		if err := first(checkID("actor", l.Actor), l.Round.check()); err != nil {
			return err
		}
	}
	return nil
}

// check is fine with no strikes.
func (s *Strikes) check() error {
	for _, f := range s.GetFaults() {
		if f > maxFaults {
			return bad("field out of range", "fault %d", f)
		}
	}
	return nil
}

// check is fine with no round.
func (r *Round) check() error {
	if s := r.GetStep(); s < 0 || s > maxCount || r.GetPhase() > 255 {
		return bad("field out of range", "step %d, phase %d", s, r.GetPhase())
	}
	if n := len(r.GetShares()); n > maxShares {
		return bad("field out of range", "shares of %d bytes", n)
	}
	return nil
}

// checkWord bounds a name that may be empty.
func checkWord(what, word string) error {
	if len(word) > maxWord || !utf8.ValidString(word) {
		return bad("field out of range", "%s of %d bytes", what, len(word))
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// unknown reports whether a message has fields, at any depth, that this version does not know.
func unknown(m protoreflect.Message) bool {
	found := len(m.GetUnknown()) > 0
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case found || f.IsMap() || f.Message() == nil: // the map is of options, which are words
		case f.IsList():
			for i := range v.List().Len() {
				found = found || unknown(v.List().Get(i).Message())
			}
		default:
			found = unknown(v.Message())
		}
		return !found
	})
	return found
}
