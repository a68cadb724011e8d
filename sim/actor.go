package sim

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/supervisor"
)

// actor is one life of an actor and its stream: items run one after the other, a launch takes time and the rest none.
type actor struct {
	Actor
	id          plan.ActorID
	incarnation int
	node        int
	items       []machine.Effect
	runs        bool
	broken      bool // an operation failed: nothing more is run
	dead        bool
	busy        time.Duration
	// factor is how many times as long operations last, until slow ends.
	factor float64
	slow   time.Duration
	// told are the newest lives of others that it was told of.
	told map[plan.ActorID]int
	// restored says that it has its state.
	restored bool
	// hangs says that the operation on the stream does not end.
	hangs bool
}

// bear begins a life.
func (w *world) bear(x Actor, incarnation int) *actor {
	a := &actor{Actor: x, id: x.Machine.ID(), incarnation: incarnation, factor: 1}
	w.lives = append(w.lives, a)
	w.byID[a.id] = a
	return a
}

// hears takes down a life that it is told of.
func (a *actor) hears(e machine.PeerIs) {
	if a.told == nil {
		a.told = map[plan.ActorID]int{}
	}
	a.told[e.Peer] = max(a.told[e.Peer], e.Incarnation)
}

// end gives back all that a life holds. What its executor holds stays until it is closed.
func (a *actor) end() {
	if c, ok := a.Machine.(machine.Closer); ok {
		a.items = append(a.items, c.Close()...)
	}
	release(a.items)
	a.items = nil
}

// kill ends a life at once.
func (w *world) kill(a *actor) {
	if a.dead {
		return
	}
	a.dead = true
	a.end()
	a.close()
	// What it had sent may have left its process, or not.
	for i := range w.queue {
		if m := &w.queue[i]; m.from == a && m.event != nil && w.draw() < 0.5 {
			release(machine.Discard(m.event))
			m.event, m.do = nil, func() {}
		}
	}
}

func (w *world) perform(a *actor, effects []machine.Effect) {
	for i, e := range effects {
		switch e := e.(type) {
		case machine.Send:
			if w.cluster != nil && w.cluster.sends(a, *e.Message) {
				release(effects[i:])
				return
			}
			w.send(a, *e.Message)
		case machine.Launch, machine.Drop:
			a.items = append(a.items, e)
		case machine.Refused:
			if len(w.result.Refused) < 100 {
				w.result.Refused = append(w.result.Refused, e)
			}
		case machine.Fail:
			f := machine.Failed{Actor: a.id, Incarnation: a.incarnation, Node: fmt.Sprintf("node %d", a.node), Round: e.Round, Op: e.Op, Cause: e.Cause.Error()}
			if w.cluster != nil {
				w.cluster.fails(a, f, e.Cause)
			} else {
				w.happen(w.delay(), w.byID[plan.Trainer], f)
			}
		case machine.Committed:
			if w.cluster != nil {
				w.cluster.opens(a, e.Round)
			}
		case machine.Announce:
			for _, id := range w.ids() {
				w.push(w.delay(), moment{to: id, from: a, event: e.PeerIs})
			}
		case machine.Stop:
			if w.cluster != nil && (w.byID[a.id] != a || ownFailure(e.Err)) {
				continue // nobody hears it, or the root knows and answers
			}
			w.stopped = true
			w.err = e.Err
		default:
			panic(fmt.Sprintf("sim: %s wants an effect %T, which is not known", a.id, e))
		}
	}
}

// ownFailure says that a trainer has ended the run because it cannot go on itself.
func ownFailure(err error) bool {
	var f *supervisor.Failure
	return errors.As(err, &f) && f.Actor == plan.Trainer
}

// ids are the actors in the order in which they were given.
func (w *world) ids() []plan.ActorID {
	var ids []plan.ActorID
	for _, a := range w.Actors {
		ids = append(ids, a.Machine.ID())
	}
	return ids
}

// pump runs what is queued on an actor's stream up to and including the next launch.
func (w *world) pump(a *actor) {
	for !a.runs && !a.dead && len(a.items) > 0 {
		e := a.items[0]
		a.items = a.items[1:]
		switch e := e.(type) {
		case machine.Drop:
			e.Payload.Release()
		case machine.Launch:
			if a.broken {
				continue
			}
			w.begin(a, e)
		}
	}
}

// begin runs an operation, and ends it when its time has passed.
func (w *world) begin(a *actor, l machine.Launch) {
	s := strike{}
	if w.cluster != nil {
		if s = w.cluster.launches(a, l); a.dead {
			return
		}
	}
	took := time.Duration(w.draw() * float64(w.OpTimeMax))
	if a.factor != 1 && w.now < a.slow {
		took = time.Duration(float64(took) * a.factor)
	}
	a.busy += took
	c := machine.Completed{Round: l.Round, Op: l.Index, Elapsed: took}
	if s.panics {
		c.Err = &device.Panic{Value: "injected"}
	} else {
		c.Out, c.Err = w.launch(a, l)
	}
	a.runs, a.broken = true, c.Err != nil
	if s.hangs {
		a.hangs = true
		if s.ends == 0 {
			release(machine.Discard(c))
			return
		}
		took += s.ends
	}
	w.push(took, moment{actor: a, event: c, ends: true})
}

func (w *world) launch(a *actor, l machine.Launch) (out []machine.Payload, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &device.Panic{Value: v, Stack: debug.Stack()}
		}
	}()
	if l.Op.Kind == plan.Finish && a.id != plan.Trainer {
		r := &messages.ActorReport{Actor: string(a.id), BusyNs: int64(a.busy), Restarts: uint32(a.incarnation)}
		if a.Account != nil {
			r.PeakBytes, r.HeldBytes = a.Account.Peak(), a.Account.Held()
		}
		b, err := proto.Marshal(r)
		return []machine.Payload{machine.Blob(b)}, err
	}
	return l.Perform(w.kernels, a.Executor)
}
