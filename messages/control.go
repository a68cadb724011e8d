package messages

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// MaxControl is the most bytes of a control message. A Welcome carries the job file.
const MaxControl = 1 << 20

// EncodeControl encodes a control message behind a version byte.
func EncodeControl(c *Control) ([]byte, error) {
	b, err := proto.MarshalOptions{}.MarshalAppend([]byte{Version}, c)
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	if len(b) > MaxControl {
		return nil, fmt.Errorf("messages: a control message of %d bytes; the most is %d", len(b), MaxControl)
	}
	return b, nil
}

// DecodeControl decodes a control message. Errors wrap ErrFrame.
func DecodeControl(b []byte) (*Control, error) {
	if len(b) == 0 || len(b) > MaxControl {
		return nil, bad("not a control message", "%d bytes; legal are 1 to %d", len(b), MaxControl)
	}
	if b[0] != Version {
		return nil, bad("unknown version", "%d; this is %d", b[0], Version)
	}
	c := &Control{}
	if err := (proto.UnmarshalOptions{RecursionLimit: 16}).Unmarshal(b[1:], c); err != nil {
		return nil, bad("control message does not decode", "%v", err)
	}
	if c.Body == nil {
		return nil, bad("control message without a body", "")
	}
	return c, nil
}
