package cpu

import "sync/atomic"

// A seat is where a thread computes: the processor that it is on, as long as it has work. Two threads of this process on
// one processor, with another one free, take twice as long as they need to, and a scheduler may leave them
// there for many milliseconds, which are many kernels: it sees threads that sleep and wake, and not that all of them wait for
// the slowest. So a thread that begins to compute where another one of this process computes already moves to
// a free processor, if there is one. It is not tied to it: the scheduler may move it on at any time.
//
// What other processes do is not known here; the scheduler knows.
type seat struct {
	at int32 // the processor + 1, or 0 while the thread has no work
}

// mostProcessors bounds the processors that are told apart; on those beyond, threads stay where they are.
const mostProcessors = 1024

// taken counts the threads that compute on each processor. It is a guess: a thread that the scheduler
// moves is counted where it was until it looks again.
var taken [mostProcessors]struct {
	atomic.Int32
	_ [align - 4]byte
}

// take is called when a thread begins to compute, and now and then while it does.
func (s *seat) take() {
	p := processor()
	if p < 0 || p >= mostProcessors || int32(p)+1 == s.at {
		return
	}
	s.leave()
	if taken[p].Add(1) > 1 {
		if q := move(p); q >= 0 {
			taken[p].Add(-1)
			taken[q].Add(1)
			p = q
		}
	}
	s.at = int32(p) + 1
}

// leave is called when a thread has nothing to compute.
func (s *seat) leave() {
	if s.at > 0 {
		taken[s.at-1].Add(-1)
		s.at = 0
	}
}
