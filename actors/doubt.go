package actors

import (
	"context"
	"net"
	"sync"
	"time"
)

// mostDoubts is how often a node that is silent may answer in another way before it is given up all the same.
const mostDoubts = 4

// doubt is about somebody who is silent: the route between two servers may have been cut, and takes a second to come back,
// or the machine is loaded. The zero value stands for none.
type doubt struct {
	silent time.Duration // in all, as far as it is known
	asked  int
}

// open says that there is one.
func (d doubt) open() bool { return d.asked > 0 }

// doubts ask those who are silent, on a connection of its own, whether they are there. A process that is gone refuses at
// once; one that is stopped, or out of reach, has as long to answer as it had for heartbeats.
type doubts struct {
	server  *Server // nil where there is nobody to ask
	limit   time.Duration
	ctx     context.Context
	cancel  func()
	pending *sync.WaitGroup
}

func newDoubts(s *Server, limit time.Duration) doubts {
	ctx, cancel := context.WithCancel(context.Background())
	return doubts{s, limit, ctx, cancel, new(sync.WaitGroup)}
}

// ask asks a node that has been silent for some time more, at an address, and has told told what came of it: nil for an answer. The
// result is false when there is nothing to ask, or no more.
func (x doubts) ask(d *doubt, node int, address string, silent time.Duration, told func(error)) bool {
	d.silent += silent
	if address == "" || d.asked == mostDoubts {
		return false
	}
	d.asked++
	x.pending.Go(func() {
		ctx, cancel := context.WithTimeout(x.ctx, x.limit)
		defer cancel()
		err := x.server.options.Valve.pass(ctx, node)
		if err == nil {
			err = x.server.answers(ctx, address)
		}
		if x.ctx.Err() == nil {
			told(err)
		}
	})
	return true
}

// end ends all that is asked.
func (x doubts) end() {
	x.cancel()
	x.pending.Wait()
}

// usable is an address, or empty if it is one that stands for all of a machine's.
func usable(address string) string {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		return ""
	}
	return address
}
