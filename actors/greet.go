package actors

import (
	"context"
	"sort"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// The first answer to a question is lost when the server of the other side does not know yet that the
// asker listens for it; so it is asked again soon, and later with more patience.
const (
	firstAnswer = 50 * time.Millisecond
	lastAnswer  = time.Second
)

// greet asks every actor of other nodes for an answer, until all have answered or ctx ends. Servers
// tell each other only by and by who listens to what, and what is published to a subject that
// nobody is known to listen to is thrown away: after this, nothing is. missing is told who does not
// answer yet, whenever that changes.
func (t *transport) greet(ctx context.Context, missing func([]string)) error {
	var mu sync.Mutex
	lack := map[string]bool{}
	tell := func() {
		var names []string
		for a := range lack {
			names = append(names, a)
		}
		sort.Strings(names)
		missing(names)
	}
	var remote []plan.ActorID
	for a, l := range t.node.directory.all() {
		if l.node != t.node.options.Index && l.node != nowhere {
			remote = append(remote, a)
			lack[string(a)] = true
		}
	}
	tell()
	var all sync.WaitGroup
	for _, a := range remote {
		all.Go(func() {
			if t.question(ctx, a) {
				mu.Lock()
				defer mu.Unlock()
				delete(lack, string(a))
				tell()
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// question asks one actor until it answers; false when ctx ended first.
func (t *transport) question(ctx context.Context, a plan.ActorID) bool {
	b, err := messages.AppendFrame(nil, readyHeader(t.node.options.Index, a, false), nil)
	for patience := firstAnswer; err == nil; patience = min(2*patience, lastAnswer) {
		var m *nats.Msg
		asked := errShut
		if !t.shut(a) {
			once, cancel := context.WithTimeout(ctx, patience)
			m, asked = t.data.RequestWithContext(once, t.subject(a, 0), b)
			cancel()
		}
		if asked == nil {
			if f, err := messages.DecodeFrame(m.Data); err == nil {
				if r := f.Header.GetReady(); r != nil && r.Answer && r.Actor == string(a) {
					return true
				}
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.trouble("publish", err)
	return false
}
