package actors

import "github.com/troupe-train/troupe/plan"

// The epoch of a link holds the incarnations of both its ends, so that neither end of a new life goes on where an old
// one has ended: (that of the sender + 1) << 32 | that of the receiver. It never goes down.
const receiverBits = 32

func epochOf(sender, receiver int) uint64 { return uint64(sender+1)<<receiverBits | uint64(receiver) }

func senderOf(epoch uint64) int { return int(epoch>>receiverBits) - 1 }

func receiverOf(epoch uint64) int { return int(epoch & (1<<receiverBits - 1)) }

// reset ends the links to and from lives that are over, or that are not on another node any more.
func (t *transport) reset() {
	lives := t.node.directory.all()
	away := func(l life) bool { return l.node != nowhere && l.node != t.node.options.Index }
	t.end(func(e edge, epoch uint64) bool {
		from, to := lives[e.from], lives[e.to]
		return from.node != t.node.options.Index || !away(to) || epoch != epochOf(from.incarnation, to.incarnation)
	})
}

// leave ends the links of an actor of this node whose life is over.
func (t *transport) leave(a plan.ActorID) {
	t.end(func(e edge, _ uint64) bool { return e.from == a })
}

// end takes out links and gives back what they hold.
func (t *transport) end(which func(edge, uint64) bool) {
	var over []*outlet
	t.mu.Lock()
	for e, o := range t.outs {
		if which(e, o.sender.epoch) {
			o.over = true
			over = append(over, o)
			delete(t.outs, e)
		}
	}
	t.mu.Unlock()
	for _, o := range over {
		o.release()
	}
}
