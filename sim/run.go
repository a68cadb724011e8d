package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/plan"
)

// world is a simulation that runs.
type world struct {
	Config
	kernels device.Kernels
	key     uint64
	draws   uint64
	// lives are all that there were; byID has the present one of every actor.
	lives   []*actor
	byID    map[plan.ActorID]*actor
	queue   queue
	numbers int
	now     time.Duration
	trace   trace
	result  Result
	stopped bool
	err     error
	cluster *cluster // nil: nobody answers failures
}

// Run drives the actors until the trainer ends the run. Its error is that of the trainer's Stop, a
// *Deadlock, what a recovery gave up with, or what broke an invariant of the simulation; the Result is
// there in any case.
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
		w.bear(a, 0)
	}
	if w.byID[plan.Trainer] == nil {
		return nil, fmt.Errorf("sim: none of the %d actors is the trainer", len(c.Actors))
	}
	if c.Cluster != nil {
		w.cluster = newCluster(w, c.Cluster)
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
	if w.cluster != nil {
		w.result.Struck = w.cluster.Faults.Struck()
	}
	w.result.Trace = w.trace.sum()
	return &w.result, err
}

func (w *world) run() error {
	w.happen(0, w.byID[plan.Trainer], machine.Begin{})
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
		w.handle(m)
	}
	return errors.Join(w.err, w.finish())
}

// handle lets a moment happen.
func (w *world) handle(m moment) {
	if m.do != nil {
		m.do()
		return
	}
	a := w.receiver(&m)
	if a == nil {
		return
	}
	w.result.Events++
	w.trace.event(w.now, a.id, m.event)
	if m.ends {
		a.runs = false
	}
	if w.cluster != nil && w.cluster.arrives(a, m.event) {
		release(machine.Discard(m.event))
		return
	}
	if e, ok := m.event.(machine.PeerIs); ok {
		a.hears(e)
	}
	effects := a.Machine.Handle(m.event)
	if w.cluster != nil && w.cluster.Plant == EarlyTrim {
		effects = w.cluster.trim(m.event, effects)
	}
	w.perform(a, effects)
	w.pump(a)
}

// draw is the next random number in [0,1).
func (w *world) draw() float64 {
	w.draws++
	return random.Uniform(w.key, w.draws)
}

func (w *world) push(after time.Duration, m moment) {
	w.numbers++
	m.at, m.number = w.now+after, w.numbers
	w.queue.push(m)
}

// happen lets an event happen to a life.
func (w *world) happen(after time.Duration, a *actor, e machine.Event) {
	w.push(after, moment{actor: a, event: e})
}

// later does something that happens to nobody.
func (w *world) later(after time.Duration, do func()) { w.push(after, moment{do: do}) }

// finish gives back every reference, and says which actor still holds what it should not.
func (w *world) finish() error {
	for len(w.queue) > 0 {
		m := w.queue.pop()
		if m.event != nil {
			release(machine.Discard(m.event))
		}
	}
	for _, a := range w.lives {
		switch {
		case a.dead:
		case w.byID[a.id] != a: // it went on unheard
			a.dead = true
			a.end()
			a.close()
		default:
			a.end()
		}
	}
	var held []error
	for _, a := range w.lives {
		for l := device.Parameters; l <= device.Workspace; l++ {
			// Executors keep what they had when a run broke off, and weights and moments at any end.
			if w.err != nil || a.Account == nil || !a.dead && (l == device.Parameters || l == device.Optimizer) {
				continue
			}
			if n := a.Account.HeldFor(l); n != 0 {
				held = append(held, fmt.Errorf("sim: %s (incarnation %d) holds %d bytes of %s after the end", a.id, a.incarnation, n, l))
			}
		}
	}
	for _, a := range w.lives {
		if !a.dead && a.incarnation > 0 {
			a.close()
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
