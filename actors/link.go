package actors

import "time"

// A link is the ordered way from one actor to another. There is one for each pair of actors that
// talk, not one for each pair of nodes: then a gradient that fills its window holds back no
// activation, a sender can take turns between its links, and the numbering ends with the actor
// whose it is. The price is a window for each pair, which bounds what is on its way, not what is
// held: both ends keep payloads by reference, and the receiver writes a chunk to its place at once.
//
// NATS delivers at most once. A link makes that exactly once: chunks are numbered, the receiver takes
// the one it wants next and nothing else, says with every acknowledgement how much more it may be
// sent, and the sender keeps all that is not acknowledged and sends it again.
//
// Both halves are pure: they start nothing, and time comes in as an argument.

const (
	// chunkBytes is the most data of one chunk, and window the most charge on its way over one link:
	// 4 chunks are what the measurements ask for.
	chunkBytes = 256 << 10
	window     = 4 * (chunkBytes + chunkCharge)
	// chunkCharge is charged for a chunk beside its data, so that the window bounds small ones too.
	chunkCharge = 512

	// A sender that hears nothing sends again after resendMin, then after twice that, up to resendMax.
	resendMin = 200 * time.Millisecond
	resendMax = time.Second
	// askFirst takes the place of resendMin until the receiver has been heard for the first time: servers tell each
	// other only by and by of a subject that somebody new listens to, and what comes before that is thrown away. It is
	// then not the chunk that goes again but a probe, which is small.
	askFirst = 20 * time.Millisecond
	// gapPause is the least time between two answers to gaps: a burst behind one lost chunk makes many.
	gapPause = 20 * time.Millisecond
)

func charge(bytes int64) uint64 { return uint64(bytes) + chunkCharge }

// parcel is a message on a link: what it is, and its size in bytes.
type parcel[M any] struct {
	message M
	bytes   int64
}

// chunk is what a sender wants to go over the wire.
type chunk[M any] struct {
	message       M
	sequence      uint64
	offset, bytes int64
	// probe says that there is no chunk: the receiver is asked what it has.
	probe bool
}

// sent is a chunk that is not acknowledged.
type sent[M any] struct {
	chunk[M]
	// last says that it ends its message.
	last bool
}

// sender is the sending half of a link.
//
// Invariants: acked <= cursor <= next; flight holds the chunks [acked, next); the charge of all
// chunks before next is at most limit.
type sender[M any] struct {
	epoch uint64

	queue  []parcel[M] // not yet cut, or not wholly
	offset int64       // of the first, how much has been cut
	flight []sent[M]

	acked  uint64 // all before are acknowledged
	cursor uint64 // the next to go over the wire
	next   uint64 // the next to be cut
	used   uint64 // charge of all before next
	limit  uint64 // what the receiver has granted
	again  uint64 // chunks that were sent more than once
	high   uint64 // the first that never went over the wire

	heard    bool      // an answer has come
	deadline time.Time // when to send again; zero when nothing is owed
	timeout  time.Duration
	answered time.Time // the last answer to a gap
	// alone says that after a timeout one chunk goes, and the rest only when the receiver answers: a
	// receiver that is stopped is not sent its window again and again.
	alone bool
	// ask says that a probe is due.
	ask bool
}

func newSender[M any](epoch uint64) *sender[M] {
	return &sender[M]{epoch: epoch, acked: 1, cursor: 1, next: 1, high: 1, limit: window, timeout: askFirst}
}

// push queues a message.
func (s *sender[M]) push(m M, bytes int64) { s.queue = append(s.queue, parcel[M]{m, bytes}) }

// idle reports whether all that was pushed has been acknowledged.
func (s *sender[M]) idle() bool { return len(s.queue) == 0 && len(s.flight) == 0 }

// bytes is the size of the messages that have not been acknowledged, but for what has been of them.
func (s *sender[M]) bytes() int64 {
	sum := -s.offset
	for _, p := range s.queue {
		sum += p.bytes
	}
	for _, c := range s.flight {
		sum += c.bytes
	}
	return sum
}

// held are the messages that have not been acknowledged, each once.
func (s *sender[M]) held() []M {
	var all []M
	for _, c := range s.flight {
		if c.last {
			all = append(all, c.message)
		}
	}
	for _, p := range s.queue {
		all = append(all, p.message)
	}
	return all
}

// take returns what should go over the wire next, and false when there is nothing for now.
func (s *sender[M]) take(now time.Time) (chunk[M], bool) {
	if s.ask {
		s.ask = false
		return chunk[M]{probe: true}, true
	}
	if s.alone && s.cursor > s.acked {
		return chunk[M]{}, false
	}
	if s.cursor == s.next && !s.cut() {
		if len(s.queue) > 0 && s.deadline.IsZero() {
			// No credit and nothing on its way that could bring some: the grant was lost.
			s.deadline = now.Add(s.timeout)
		}
		return chunk[M]{}, false
	}
	c := s.flight[s.cursor-s.acked].chunk
	s.cursor++
	if s.cursor > s.high {
		s.high = s.cursor
	} else {
		s.again++
	}
	if s.deadline.IsZero() {
		s.deadline = now.Add(s.timeout)
	}
	return c, true
}

// cut makes the next chunk, if there is a message and credit for it.
func (s *sender[M]) cut() bool {
	if len(s.queue) == 0 {
		return false
	}
	p := s.queue[0]
	n := min(p.bytes-s.offset, chunkBytes)
	if s.used+charge(n) > s.limit {
		return false
	}
	c := sent[M]{chunk: chunk[M]{message: p.message, sequence: s.next, offset: s.offset, bytes: n}}
	s.used += charge(n)
	s.next++
	s.offset += n
	if s.offset == p.bytes {
		c.last = true
		s.queue[0] = parcel[M]{}
		s.queue = s.queue[1:]
		s.offset = 0
	}
	s.flight = append(s.flight, c)
	return true
}

// grant is what a receiver answers.
type grant struct {
	epoch uint64
	// next is the sequence that it wants; limit is the charge that it allows in all.
	next, limit uint64
	// gap says that it got a later one than it wants.
	gap bool
}

// acknowledge takes an answer and returns the messages that have arrived whole. Answers may come
// late, twice and in any order.
func (s *sender[M]) acknowledge(g grant, now time.Time) []M {
	if g.epoch != s.epoch || g.next > s.next || g.next < s.acked {
		return nil
	}
	s.limit = max(s.limit, g.limit)
	if !s.heard {
		s.heard, s.timeout = true, resendMin
		if !s.deadline.IsZero() {
			s.deadline = now.Add(s.timeout)
		}
		if g.next == s.acked {
			s.cursor = s.acked // it has been asked, and has nothing
		}
	}
	var whole []M
	if g.next > s.acked {
		n := g.next - s.acked
		for i := range s.flight[:n] {
			if s.flight[i].last {
				whole = append(whole, s.flight[i].message)
			}
			s.flight[i] = sent[M]{}
		}
		s.flight = s.flight[n:]
		s.acked = g.next
		s.cursor = max(s.cursor, s.acked)
		s.timeout = resendMin
		s.deadline = time.Time{}
		if s.cursor > s.acked {
			s.deadline = now.Add(s.timeout)
		}
		s.alone = false
	} else if pause := now.Sub(s.answered); g.gap && s.cursor > s.acked && (pause >= gapPause || pause < 0) {
		s.answered = now
		s.cursor = s.acked
		s.alone = false
	}
	if len(s.flight) == 0 && len(s.queue) == 0 {
		s.deadline = time.Time{}
	}
	return whole
}

// tick lets time pass. After it, take may have something.
func (s *sender[M]) tick(now time.Time) {
	// A deadline that lies further away than the timeout was set before the clock went back.
	if left := s.deadline.Sub(now); s.deadline.IsZero() || left > 0 && left <= s.timeout {
		return
	}
	s.timeout = min(2*s.timeout, resendMax)
	s.deadline = now.Add(s.timeout)
	if len(s.flight) > 0 && s.heard {
		s.cursor = s.acked
		s.alone = true
	} else {
		s.ask = true
	}
}

// receiver is the receiving half of a link.
type receiver struct {
	epoch uint64
	next  uint64 // the sequence that it wants
	taken uint64 // the charge of all before next that has been put in place
	gap   bool   // since the last answer
	// answer says that an acknowledgement is due.
	answer bool
}

type verdict uint8

const (
	// fresh is the chunk that is wanted.
	fresh verdict = iota
	// repeated was here before, and early came before its time: neither is used.
	repeated
	early
	// stale is of an epoch that has ended.
	stale
)

// accept judges a chunk. After fresh the caller puts the data in its place and calls placed. What it
// has of a message of an older epoch will never be whole.
func (r *receiver) accept(epoch, sequence uint64) verdict {
	if epoch < r.epoch {
		return stale
	}
	if epoch > r.epoch {
		*r = receiver{epoch: epoch, next: 1}
	}
	r.answer = true
	switch {
	case sequence < r.next:
		return repeated
	case sequence > r.next:
		r.gap = true
		return early
	}
	r.next++
	return fresh
}

// placed gives the charge of a chunk back to the sender.
func (r *receiver) placed(bytes int64) { r.taken += charge(bytes) }

// probed answers a probe.
func (r *receiver) probed(epoch uint64) {
	switch {
	case epoch > r.epoch:
		*r = receiver{epoch: epoch, next: 1, answer: true}
	case epoch == r.epoch:
		r.answer = true
	}
}

// grant returns the answer that is due, if one is.
func (r *receiver) grant() (grant, bool) {
	if !r.answer {
		return grant{}, false
	}
	g := grant{epoch: r.epoch, next: r.next, limit: r.taken + window, gap: r.gap}
	r.answer, r.gap = false, false
	return g, true
}
