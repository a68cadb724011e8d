package sim

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// world is a simulation that runs.
type world struct {
	Config
	kernels device.Kernels
	key     uint64
	draws   uint64
	actors  []*actor
	byID    map[plan.ActorID]*actor
	queue   queue
	numbers int
	now     time.Duration
	trace   trace
	result  Result
	stopped bool
	err     error
}

// actor is an actor and its stream: items run one after the other, a launch takes time and the rest none.
type actor struct {
	Actor
	id     plan.ActorID
	items  []machine.Effect
	runs   bool
	broken bool // an operation failed: nothing more is run
	busy   time.Duration
}

// Run drives the actors until the trainer ends the run. Its error is that of the trainer's Stop, a
// *Deadlock, or what broke an invariant of the simulation; the Result is there in any case.
func Run(c Config) (*Result, error) {
	if c.OpTimeMax == 0 {
		c.OpTimeMax = time.Millisecond
	}
	if c.EventsMax == 0 {
		c.EventsMax = 1_000_000
	}
	w := &world{Config: c, key: random.Key(random.String("sim"), c.Seed), byID: map[plan.ActorID]*actor{}}
	w.result.Sent = map[plan.Kind]int64{}
	for _, a := range c.Actors {
		x := &actor{Actor: a, id: a.Machine.ID()}
		w.actors = append(w.actors, x)
		w.byID[x.id] = x
	}
	if w.byID[plan.Trainer] == nil {
		return nil, fmt.Errorf("sim: none of the %d actors is the trainer", len(c.Actors))
	}
	w.trace.start(c.Trace)
	s, err := c.Device.OpenStream("sim", 1)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	s.Do(func(k device.Kernels) error {
		w.kernels = k
		return w.run()
	}, func(err error) { ended <- err })
	err = <-ended
	if closed := s.Close(); err == nil {
		err = closed
	}
	w.result.Time = w.now
	w.result.Trace = w.trace.sum()
	return &w.result, err
}

func (w *world) run() error {
	w.schedule(0, w.byID[plan.Trainer], machine.Begin{}, false)
	for !w.stopped && w.err == nil {
		if len(w.queue) == 0 {
			w.err = w.deadlock()
			break
		}
		if w.result.Events >= w.EventsMax {
			w.err = fmt.Errorf("sim: %d events and no end; the trainer is %s", w.result.Events, w.byID[plan.Trainer].Machine.Waiting())
			break
		}
		m := w.queue.pop()
		w.now = m.at
		w.result.Events++
		w.trace.event(w.now, m.actor.id, m.event)
		if m.ends {
			m.actor.runs = false
		}
		w.perform(m.actor, m.actor.Machine.Handle(m.event))
		w.pump(m.actor)
	}
	return errors.Join(w.err, w.finish())
}

// draw is the next random number in [0,1).
func (w *world) draw() float64 {
	w.draws++
	return random.Uniform(w.key, w.draws)
}

func (w *world) schedule(after time.Duration, a *actor, e machine.Event, ends bool) {
	w.numbers++
	w.queue.push(moment{at: w.now + after, number: w.numbers, actor: a, event: e, ends: ends})
}

func (w *world) perform(a *actor, effects []machine.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case machine.Send:
			w.send(e.Message)
		case machine.Launch, machine.Drop:
			a.items = append(a.items, e)
		case machine.Refused:
			if len(w.result.Refused) < 100 {
				w.result.Refused = append(w.result.Refused, e)
			}
		case machine.Fail:
			w.schedule(w.delay(), w.byID[plan.Trainer], machine.Failed{Actor: a.id, Round: e.Round, Op: e.Op, Cause: e.Cause.Error()}, false)
		case machine.Committed:
		case machine.Stop:
			w.stopped = true
			w.err = errors.Join(w.err, e.Err)
		default:
			panic(fmt.Sprintf("sim: %s wants an effect %T, which is not known", a.id, e))
		}
	}
}

// send puts a message, and perhaps a copy, on the network. Each holds its own reference.
func (w *world) send(m machine.Message) {
	to := w.byID[m.Name.To]
	if to == nil {
		w.err = fmt.Errorf("sim: there is no actor %s for %s", m.Name.To, m.Name)
		return
	}
	w.result.Messages++
	copies := 1
	if w.Network.Duplicates > 0 && w.draw() < w.Network.Duplicates {
		copies = 2
		w.result.Duplicates++
	}
	if m.Payload != nil {
		w.result.Sent[m.Name.Value.Kind] += m.Payload.Bytes()
	}
	for range copies {
		if m.Payload != nil {
			m.Payload.Retain()
		}
		w.schedule(w.delay(), to, machine.Arrived{Message: m}, false)
	}
}

func (w *world) delay() time.Duration {
	n := &w.Network
	d := n.DelayMin
	if n.DelayMax > n.DelayMin {
		d += time.Duration(w.draw() * float64(n.DelayMax-n.DelayMin))
	}
	if n.Stragglers > 0 && w.draw() < n.Stragglers {
		d *= time.Duration(n.StragglerFactor)
	}
	return d
}

// pump runs what is queued on an actor's stream up to and including the next launch.
func (w *world) pump(a *actor) {
	for !a.runs && len(a.items) > 0 {
		e := a.items[0]
		a.items = a.items[1:]
		switch e := e.(type) {
		case machine.Drop:
			e.Payload.Release()
		case machine.Launch:
			if a.broken {
				continue
			}
			took := time.Duration(w.draw() * float64(w.OpTimeMax))
			a.busy += took
			c := machine.Completed{Round: e.Round, Op: e.Index, Elapsed: took}
			c.Out, c.Err = w.launch(a, e)
			a.runs, a.broken = true, c.Err != nil
			w.schedule(took, a, c, true)
		}
	}
}

func (w *world) launch(a *actor, l machine.Launch) (out []machine.Payload, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &device.Panic{Value: v, Stack: debug.Stack()}
		}
	}()
	if l.Op.Kind == plan.Finish && a.id != plan.Trainer {
		b, err := proto.Marshal(&messages.ActorReport{
			Actor: string(a.id), BusyNs: int64(a.busy), PeakBytes: a.Account.Peak(), HeldBytes: a.Account.Held(),
		})
		return []machine.Payload{machine.Blob(b)}, err
	}
	return l.Perform(w.kernels, a.Executor)
}

// finish gives back every reference, and says which actor still holds what it should not.
func (w *world) finish() error {
	for len(w.queue) > 0 {
		m := w.queue.pop()
		if m.ends {
			m.actor.runs = false
		}
		release(machine.Discard(m.event))
	}
	for _, a := range w.actors {
		if c, ok := a.Machine.(machine.Closer); ok {
			a.items = append(a.items, c.Close()...)
		}
		release(a.items)
		a.items = nil
	}
	if w.err != nil {
		return nil // executors keep what they had when the run broke off
	}
	var held []error
	for _, a := range w.actors {
		for _, l := range []device.Label{device.Gradients, device.Activations, device.Messages, device.Workspace} {
			if n := a.Account.HeldFor(l); n != 0 {
				held = append(held, fmt.Errorf("sim: %s holds %d bytes of %s after the end", a.id, n, l))
			}
		}
	}
	return errors.Join(held...)
}

func release(effects []machine.Effect) {
	for _, e := range effects {
		if d, ok := e.(machine.Drop); ok {
			d.Payload.Release()
		}
	}
}
