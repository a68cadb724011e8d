package actors

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// wire is a network between the two halves of a link that loses, repeats, delays and reorders, on a
// clock of its own.
type wire struct {
	now      time.Time
	sender   *sender[int]
	receiver receiver
	to       []onWire // chunks and probes
	back     []grant

	pushed []int64 // sizes of the messages
	part   int64   // bytes of the message that is being received
	got    int     // messages received whole
	whole  int     // messages that the sender knows to have arrived
}

type onWire struct {
	epoch uint64
	chunk chunk[int]
}

func newWire() *wire {
	return &wire{now: time.Unix(0, 0), sender: newSender[int](1)}
}

func (w *wire) push(bytes int64) {
	w.sender.push(len(w.pushed), bytes)
	w.pushed = append(w.pushed, bytes)
}

// take puts what the sender has on the wire.
func (w *wire) take(t fatal) bool {
	c, ok := w.sender.take(w.now)
	if ok {
		w.to = append(w.to, onWire{w.sender.epoch, c})
	}
	// The window bounds what is on its way, however often it is sent.
	var flight uint64
	for _, c := range w.sender.flight {
		flight += charge(c.bytes)
	}
	if flight > window {
		t.Fatalf("%d bytes are on their way, the window is %d", flight, window)
	}
	return ok
}

type fatal interface{ Fatalf(string, ...any) }

// arrive lets the receiver have a chunk or probe.
func (w *wire) arrive(t fatal, x onWire) {
	c := x.chunk
	if c.probe {
		w.receiver.probed(x.epoch)
		w.answer()
		return
	}
	if w.receiver.accept(x.epoch, c.sequence) == fresh {
		if c.message != w.got || c.offset != w.part {
			t.Fatalf("byte %d of message %d was taken, byte %d of message %d is next", c.offset, c.message, w.part, w.got)
		}
		w.receiver.placed(c.bytes)
		w.part += c.bytes
		if w.part == w.pushed[w.got] {
			w.got, w.part = w.got+1, 0
		}
	}
	w.answer()
}

func (w *wire) answer() {
	if g, ok := w.receiver.grant(); ok {
		w.back = append(w.back, g)
	}
}

func (w *wire) acknowledge(t fatal, g grant) {
	for _, m := range w.sender.acknowledge(g, w.now) {
		if m != w.whole || m >= w.got {
			t.Fatalf("message %d is called whole; %d were before and %d have arrived", m, w.whole, w.got)
		}
		w.whole++
	}
}

// settle lets the network be kind, and checks that everything arrives within a bound on time and chunks.
func (w *wire) settle(t fatal) {
	for range 1000 {
		for w.take(t) {
		}
		for len(w.to) > 0 {
			x := w.to[0]
			w.to = w.to[1:]
			w.arrive(t, x)
		}
		for len(w.back) > 0 {
			g := w.back[0]
			w.back = w.back[1:]
			w.acknowledge(t, g)
		}
		if w.sender.idle() {
			break
		}
		w.now = w.now.Add(tickEvery)
		w.sender.tick(w.now)
	}
	if !w.sender.idle() || w.got != len(w.pushed) || w.whole != len(w.pushed) {
		t.Fatalf("of %d messages %d arrived and %d are known to have: %+v", len(w.pushed), w.got, w.whole, w.sender)
	}
	if len(w.sender.held()) != 0 || w.sender.bytes() != 0 {
		t.Fatalf("the sender holds %d messages, %d bytes", len(w.sender.held()), w.sender.bytes())
	}
}

// TestLinkDeliversExactlyOnce does what a network may do, in any order, and then asks for every
// message exactly once and in order.
func TestLinkDeliversExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWire()
		size := rapid.OneOf(
			rapid.Int64Range(0, 100),
			rapid.Int64Range(chunkBytes-2, chunkBytes+2),
			rapid.Int64Range(0, 3*window),
		)
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "which") }
		t.Repeat(map[string]func(*rapid.T){
			"push": func(*rapid.T) { w.push(size.Draw(t, "bytes")) },
			"send": func(*rapid.T) { w.take(t) },
			"burst": func(*rapid.T) {
				for w.take(t) {
				}
			},
			"deliver": func(*rapid.T) { // any of them: reordered
				if len(w.to) > 0 {
					i := pick(len(w.to))
					x := w.to[i]
					w.to = append(w.to[:i], w.to[i+1:]...)
					w.arrive(t, x)
				}
			},
			"repeat": func(*rapid.T) {
				if len(w.to) > 0 {
					w.arrive(t, w.to[pick(len(w.to))])
				}
			},
			"lose": func(*rapid.T) {
				if len(w.to) > 0 {
					i := pick(len(w.to))
					w.to = append(w.to[:i], w.to[i+1:]...)
				}
			},
			"answer": func(*rapid.T) {
				if len(w.back) > 0 {
					i := pick(len(w.back))
					g := w.back[i]
					w.back = append(w.back[:i], w.back[i+1:]...)
					w.acknowledge(t, g)
				}
			},
			"repeat answer": func(*rapid.T) {
				if len(w.back) > 0 {
					w.acknowledge(t, w.back[pick(len(w.back))])
				}
			},
			"lose answers": func(*rapid.T) { w.back = nil },
			"cut":          func(*rapid.T) { w.to, w.back = nil, nil },
			"wait": func(*rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
				w.sender.tick(w.now)
			},
		})
		w.settle(t)
	})
}

func TestLinkWithoutTroubleSendsEverythingOnce(t *testing.T) {
	w := newWire()
	for i := range 50 {
		w.push(int64(i) * 30000)
	}
	chunks := 0
	for !w.sender.idle() {
		for w.take(t) {
			chunks++
		}
		if len(w.to) == 0 {
			t.Fatal("nothing is on its way, and not all has arrived")
		}
		for _, x := range w.to {
			w.arrive(t, x)
		}
		w.to = nil
		for _, g := range w.back {
			w.acknowledge(t, g)
		}
		w.back = nil
	}
	want := 0
	for _, n := range w.pushed {
		want += max(1, int((n+chunkBytes-1)/chunkBytes))
	}
	if chunks != want {
		t.Fatalf("%d chunks went over the wire, want %d", chunks, want)
	}
}

// TestLinkOutlivesALostGrant: all that was sent has been acknowledged, but the grant of more is lost.
func TestLinkOutlivesALostGrant(t *testing.T) {
	w := newWire()
	w.push(4 * chunkBytes)
	w.push(chunkBytes)
	for w.take(t) {
	}
	for _, x := range w.to {
		w.arrive(t, x)
	}
	w.to = nil
	last := w.back[len(w.back)-1]
	w.back = nil
	last.limit = window // as if the receiver had not put anything in its place yet
	w.acknowledge(t, last)
	if w.take(t) {
		t.Fatal("a chunk was sent over the limit")
	}
	w.now = w.now.Add(2 * resendMin)
	w.sender.tick(w.now)
	if !w.take(t) || !w.to[0].chunk.probe {
		t.Fatalf("no probe, but %+v", w.to)
	}
	w.settle(t)
}

// TestLinkToAStoppedReceiver: while nobody answers, one chunk goes at each timeout, and the timeouts grow.
func TestLinkToAStoppedReceiver(t *testing.T) {
	w := newWire()
	w.push(10 * window)
	w.take(t)
	w.arrive(t, w.to[0])
	w.acknowledge(t, w.back[0])
	w.to, w.back = nil, nil
	for w.take(t) {
	}
	before := len(w.to)
	for range int(10 * time.Second / tickEvery) {
		w.now = w.now.Add(tickEvery)
		w.sender.tick(w.now)
		for w.take(t) {
		}
	}
	if again := len(w.to) - before; again < 5 || again > 15 {
		t.Fatalf("%d chunks were sent again in 10 s of silence", again)
	}
	w.settle(t)
}

// TestLinkToANewReceiver: what goes before anybody knows that the receiver listens is lost. It goes again when the
// receiver answers for the first time, which it is asked for soon, by probes and not by the chunks themselves.
func TestLinkToANewReceiver(t *testing.T) {
	w := newWire()
	w.push(3 * chunkBytes)
	for w.take(t) {
	}
	w.to = nil
	chunks, probes := 0, 0
	for range int(3 * askFirst / tickEvery) {
		w.now = w.now.Add(tickEvery)
		w.sender.tick(w.now)
		for w.take(t) {
		}
	}
	for _, x := range w.to {
		if x.chunk.probe {
			probes++
		} else {
			chunks++
		}
	}
	if chunks != 0 || probes != 2 {
		t.Fatalf("%d chunks and %d probes were sent within %s, want none and 2", chunks, probes, 3*askFirst)
	}
	w.arrive(t, w.to[1])
	w.to = nil
	w.acknowledge(t, w.back[0])
	w.back = nil
	for w.take(t) { // no time has passed
	}
	if len(w.to) != 3 {
		t.Fatalf("%d chunks were sent again, want 3", len(w.to))
	}
	w.settle(t)
}

// TestLinkWhoseClockGoesBack: what was to be sent again in a moment is, however far the clock has gone back.
func TestLinkWhoseClockGoesBack(t *testing.T) {
	for _, back := range []time.Duration{0, time.Second, time.Hour} {
		w := newWire()
		w.push(window / 2)
		for w.take(t) {
		}
		before := len(w.to)
		w.now = w.now.Add(-back)
		for range int(2 * resendMin / tickEvery) {
			w.now = w.now.Add(tickEvery)
			w.sender.tick(w.now)
			for w.take(t) {
			}
		}
		if len(w.to) == before {
			t.Errorf("nothing is sent again after the clock went back %s", back)
		}
		w.settle(t)
	}
}

func TestLinkResendsAtOnceAfterAGap(t *testing.T) {
	w := newWire()
	w.push(3 * chunkBytes)
	for w.take(t) {
	}
	for _, x := range w.to[1:] { // the first is lost
		w.arrive(t, x)
	}
	w.to = nil
	for _, g := range w.back {
		w.acknowledge(t, g)
	}
	w.back = nil
	for w.take(t) { // no time has passed
	}
	if len(w.to) != 3 {
		t.Fatalf("%d chunks were sent again, want 3", len(w.to))
	}
	w.settle(t)
}

func TestLinkEpochs(t *testing.T) {
	var r receiver
	steps := []struct {
		epoch, sequence uint64
		want            verdict
	}{
		{2, 1, fresh},
		{2, 2, fresh},
		{2, 1, repeated},
		{1, 3, stale},
		{3, 2, early}, // a new life of the sender, whose first chunk is still on its way
		{2, 3, stale},
		{3, 1, fresh},
		{3, 2, fresh},
	}
	for i, s := range steps {
		if got := r.accept(s.epoch, s.sequence); got != s.want {
			t.Fatalf("step %d: chunk %d of epoch %d is judged %d, want %d", i, s.sequence, s.epoch, got, s.want)
		}
	}
	s := newSender[int](3)
	s.push(0, 10)
	s.take(time.Unix(0, 0))
	if whole := s.acknowledge(grant{epoch: 2, next: 2, limit: 2 * window}, time.Unix(0, 0)); len(whole) != 0 || s.limit != window {
		t.Fatal("an answer to an older epoch was believed")
	}
	if whole := s.acknowledge(grant{epoch: 3, next: 1 << 60, limit: 2 * window}, time.Unix(0, 0)); len(whole) != 0 || s.limit != window {
		t.Fatal("an answer to what was never sent was believed")
	}
	if whole := s.acknowledge(grant{epoch: 3, next: 2, limit: window}, time.Unix(0, 0)); len(whole) != 1 {
		t.Fatal("the answer to this epoch was not believed")
	}
}
