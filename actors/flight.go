package actors

import (
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// flight is an operation on its way over the stream and back: what is put on the stream, and the message
// that says that it is complete. A shell uses flights again, so that a launch takes nothing from the heap.
type flight struct {
	shell  *shell
	launch machine.Launch
	harm   Harm
	// own says that the shell itself performs the operation, a Finish, when it is complete.
	own bool

	out     []machine.Payload
	err     error
	began   time.Time
	elapsed time.Duration

	work func(device.Kernels) error // f.run
	done func(error)                // f.land
}

// flight is one that is not under way.
func (s *shell) flight(l machine.Launch, harm Harm) *flight {
	var f *flight
	if n := len(s.landed); n > 0 {
		f, s.landed = s.landed[n-1], s.landed[:n-1]
	} else {
		f = &flight{shell: s}
		f.work, f.done = f.run, f.land
	}
	f.launch, f.harm, f.own = l, harm, l.Op.Kind == plan.Finish && s.id != plan.Trainer
	return f
}

// run is on the stream.
func (f *flight) run(k device.Kernels) (err error) {
	s := f.shell
	f.began = time.Now() // what is measured is not by the clock that may jump
	if s.broken.Load() {
		return errNotRun
	}
	f.harm.before(s.retired)
	executor := s.actor.Executor
	if f.own {
		executor = s.finisher
	}
	began := time.Now()
	f.out, err = f.launch.Perform(k, executor)
	f.harm.after(s.retired, time.Since(began))
	return err
}

// land is called when the operation is complete, or has panicked, or could not be queued.
func (f *flight) land(err error) {
	s := f.shell
	defer s.work.leave()
	if err != nil {
		s.broken.Store(true)
	}
	s.drops.landed()
	f.err = err
	if !f.began.IsZero() {
		f.elapsed = time.Since(f.began)
	}
	s.address.tell(f)
}

// clear lets go of what a flight has carried.
func (f *flight) clear() { *f = flight{shell: f.shell, work: f.work, done: f.done} }

// event is what the machine is told of a flight.
func (s *shell) event(f *flight) machine.Completed {
	if f.own {
		return s.report(f)
	}
	return machine.Completed{Round: f.launch.Round, Op: f.launch.Index, Out: f.out, Err: f.err, Elapsed: f.elapsed}
}

// finisher is an executor for a Finish that the shell performs: there is nothing to run on the stream.
type finisher struct{ machine.Executor }

func (finisher) Run(device.Kernels, plan.Round, *plan.Op, []machine.Payload) ([]machine.Payload, error) {
	return nil, nil
}
