package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

// trace hashes the events in order, and writes them as text where somebody reads it.
type trace struct {
	hash hash.Hash
	text io.Writer
	line []byte
}

func (t *trace) start(text io.Writer) {
	t.hash = sha256.New()
	t.text = text
}

// event takes down an event. The hash is over names and times as numbers: text would cost more
// than all the rest of a small simulation.
func (t *trace) event(at time.Duration, to plan.ActorID, e machine.Event) {
	b := binary.AppendVarint(t.line[:0], int64(at))
	b = append(b, to...)
	what := ""
	switch e := e.(type) {
	case machine.Arrived:
		n := e.Message.Name
		b = append(b, 'a')
		b = append(b, n.From...)
		b = number(b, int64(n.Incarnation), n.Round.Step, int64(n.Round.Phase))
		v := n.Value
		b = number(b, int64(v.Kind), int64(v.Index), int64(v.Use), int64(v.Lo), int64(v.Hi), int64(v.Piece))
		if t.text != nil {
			what = fmt.Sprintf("gets %s (%s) from %s", v, n.Round, n.From)
		}
	case machine.Completed:
		b = append(b, 'c')
		b = number(b, e.Round.Step, int64(e.Round.Phase), int64(e.Op))
		if t.text != nil {
			what = fmt.Sprintf("completes operation %d (%s)", e.Op, e.Round)
			if e.Err != nil {
				what += ": " + e.Err.Error()
			}
		}
	case machine.Failed:
		b = append(b, 'f')
		b = append(b, e.Actor...)
		b = append(b, e.Cause...)
		if t.text != nil {
			what = fmt.Sprintf("hears that %s failed in %s (%s): %s", e.Actor, e.Op, e.Round, e.Cause)
		}
	default:
		b = fmt.Appendf(b, "%T", e)
		if t.text != nil {
			what = fmt.Sprintf("is told %T", e)
		}
	}
	b = append(b, '\n')
	t.hash.Write(b)
	t.line = b
	if t.text != nil {
		fmt.Fprintf(t.text, "%s %s %s\n", at, to, what)
	}
}

func number(b []byte, values ...int64) []byte {
	for _, v := range values {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func (t *trace) sum() string { return hex.EncodeToString(t.hash.Sum(nil)) }
