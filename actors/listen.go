package actors

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// listener is the subscription of an actor of this node.
type listener struct {
	shell *shell
	sub   *nats.Subscription

	// mu is held while a frame is taken in. deaf says that none is any more.
	mu   sync.Mutex
	deaf bool
}

// listen takes what comes for an actor of this node. It returns when the node's server knows of it.
func (t *transport) listen(s *shell) error {
	l := &listener{shell: s}
	sub, err := subscribe(t.data, t.subject(s.id, s.actor.Incarnation), func(m *nats.Msg) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.deaf {
			t.receive(s, m)
		}
	})
	if err != nil {
		return err
	}
	l.sub = sub
	t.mu.Lock()
	t.ears[s.id] = l
	t.mu.Unlock()
	return t.data.FlushTimeout(flushWait)
}

// flushWait is how long the node's own server may take to answer.
const flushWait = 5 * time.Second

// mute ends listening for a life that is over. When it returns, nothing is told to it any more.
func (t *transport) mute(s *shell) {
	t.mu.Lock()
	l := t.ears[s.id]
	if l == nil || l.shell != s {
		t.mu.Unlock()
		return
	}
	delete(t.ears, s.id)
	t.mu.Unlock()
	// The connection may be closed already; then nothing comes anyway.
	_ = l.sub.Unsubscribe()
	l.mu.Lock()
	l.deaf = true
	l.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	for e, in := range t.ins {
		if in.shell == s {
			in.parts.discard()
			delete(t.ins, e)
		}
	}
}
