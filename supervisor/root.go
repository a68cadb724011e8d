package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// root is the supervisor of all actors of a run: it hears what happens to them, has Recovery decide, and does what was
// decided. It lives in the loop of conduct and nowhere else; others reach it by its inbox.
type root struct {
	run         *run
	node        *actors.Node
	coordinator *actors.Coordinator
	inbox       *inbox
	recovery    *Recovery
	executor    *Executor // of the trainer's life
	// opened is the round that the trainer has opened last.
	opened plan.Round
	// shares are those that the trainer was told last.
	shares      plan.Shares
	interrupted bool
	// moves are those under way.
	moves sync.WaitGroup
	// down is how many actors have not caught up; while it is 0 most news is of no interest.
	down atomic.Int32
}

// News of the root, besides RecoveryEvents.
type (
	// began: an actor has opened a round. incarnation is ofNow for one of this node.
	began struct {
		actor       plan.ActorID
		incarnation int
		round       plan.Round
	}
	// moved: the new life of an actor of another node lives there, or cannot.
	moved struct {
		Respawn
		err error
	}
	// wind: the run is to end, with a checkpoint.
	wind struct{}
	// forced: a fault asks for shares.
	forced struct{ shares plan.Shares }
	// reported: the report of a new life has come to the trainer.
	reported struct {
		actor       plan.ActorID
		incarnation int
		round       plan.Round
	}
)

// ofNow stands for the incarnation that an actor lives now.
const ofNow = -1

// retireWait is how long an operation of an actor that is to be restarted may still take.
const retireWait = time.Second

func newRoot(r *run) *root {
	return &root{run: r, inbox: newInbox(), recovery: r.recovery}
}

// observer hears the actors of the node for the root.
func (o *root) observer() actors.Observer {
	return actors.Observer{
		Stop: o.run.stop,
		Failed: func(f machine.Failed) {
			o.inbox.add(ActorFailed{f})
		},
		Committed: func(a plan.ActorID, r plan.Round) {
			if a == plan.Trainer || o.down.Load() > 0 {
				o.inbox.add(began{a, ofNow, r})
			}
		},
	}
}

// watch hears the other nodes for the root.
func (o *root) watch(c *actors.Coordination) {
	c.Lost = func(node int, _, cause string) { o.inbox.add(NodeLost{node, cause}) }
	c.Joined = func(node int, _ string) { o.inbox.add(NodeJoined{node}) }
	c.Opened = func(a plan.ActorID, incarnation int, r plan.Round) { o.inbox.add(began{a, incarnation, r}) }
}

// watched is a trainer whose messages the root looks at in passing.
type watched struct {
	*Trainer
	inbox *inbox
}

func (w watched) Handle(e machine.Event) []machine.Effect {
	if a, ok := e.(machine.Arrived); ok {
		if n := a.Message.Name; n.Value.Kind == plan.Report && n.Incarnation > 0 {
			w.inbox.add(reported{n.From, n.Incarnation, n.Round})
		}
	}
	effects := w.Trainer.Handle(e)
	if !slices.ContainsFunc(effects, func(e machine.Effect) bool { _, ok := e.(machine.Stop); return ok }) {
		return effects
	}
	// An operation of the trainer's own that fails ends the run by a Stop, which says why; it is one failure, not two.
	return slices.DeleteFunc(effects, func(e machine.Effect) bool { _, ok := e.(machine.Fail); return ok })
}

// ending is how a run, or an attempt at it, ends.
type ending struct {
	err error
	// back, if not nil, asks for another attempt from an earlier checkpoint.
	back *back
}

// back says from which checkpoint an attempt begins: of at most atMost steps, or an older one than the attempt before.
type back struct {
	at     int64 // the step that was open
	atMost int64
	older  bool
	reason string
	skip   []SkipEntry
	// ungathered says instead that nothing has begun: the next attempt begins where this one has.
	ungathered bool
}

// loop supervises until the attempt ends.
func (o *root) loop(ctx context.Context) *ending {
	interrupted := ctx.Done()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer o.moves.Wait()
	defer cancel()
	for {
		var alarm <-chan time.Time
		stop := func() {}
		if at, ok := o.recovery.Next(); ok {
			t := time.NewTimer(at.Sub(o.now()))
			alarm, stop = t.C, func() { t.Stop() }
		}
		var end *ending
		select {
		case <-interrupted:
			interrupted, o.interrupted = nil, true
			o.coordinator.Ending()
			o.run.winds.Store(true)
			if err := o.node.Send(plan.Trainer, machine.Interrupt{}); err != nil {
				end = &ending{err: err}
			}
		case <-o.inbox.ready:
			end = o.hear(ctx)
		case <-alarm:
			end = o.decide(ctx, Tick{})
		case err := <-o.run.stopped:
			// What was heard before belongs to the run that ends.
			if end = o.hear(ctx); end == nil {
				end = o.stopped(ctx, err)
			}
		}
		stop()
		if end == nil && o.interrupted {
			if a, ok := o.recovery.Stranded(); ok {
				end = &ending{err: fmt.Errorf("interrupted in train step %d while %s waits for a node%s", o.opened.Step, a, o.run.resumption())}
			}
		}
		if end != nil {
			return end
		}
	}
}

// hear takes in all news.
func (o *root) hear(ctx context.Context) *ending {
	for _, news := range o.inbox.take() {
		if end := o.one(ctx, news); end != nil {
			return end
		}
	}
	return nil
}

func (o *root) one(ctx context.Context, news any) *ending {
	now := o.now()
	timeline := o.run.timeline
	switch e := news.(type) {
	case began:
		if e.actor != plan.Trainer {
			n := e.incarnation
			if n == ofNow {
				n = o.recovery.Incarnation(e.actor)
			}
			if e.round.Phase == plan.RecoverPhase || n == 0 {
				return nil
			}
			timeline.Restored(now, e.actor, n, e.round)
			return o.decide(ctx, Restored{e.actor, n})
		}
		o.opened = e.round
		o.tell(timeline.Opened(now, e.round))
		if n := o.recovery.Incarnation(plan.Trainer); n > 0 {
			// The trainer that opens a round has what it needs: the others send it the rest.
			timeline.Replayed(now, plan.Trainer, n, e.round)
			if end := o.decide(ctx, CaughtUp{plan.Trainer, n}); end != nil {
				return end
			}
		}
		return o.decide(ctx, Opened{e.round})
	case reported:
		if !timeline.Replayed(now, e.actor, e.incarnation, e.round) {
			return nil
		}
		return o.decide(ctx, CaughtUp{e.actor, e.incarnation})
	case ActorFailed:
		if strings.Contains(e.Cause, machine.ErrFenced.Error()) && e.Incarnation < o.recovery.Incarnation(e.Actor) {
			return nil // it ended because it was to end
		}
		if e.Actor != "" && e.Incarnation == o.recovery.Incarnation(e.Actor) {
			timeline.Detected(now, e.Actor)
		}
		return o.decide(ctx, e)
	case NodeLost:
		for _, a := range o.recovery.On(e.Node) {
			timeline.Detected(now, a)
		}
		return o.decide(ctx, e)
	case moved:
		return o.moved(ctx, e)
	case Noted:
		o.run.decided(e)
		return nil
	case Shift:
		o.reshare(e)
		return nil
	case wind:
		o.interrupted = true
		o.coordinator.Ending()
		o.run.winds.Store(true)
		if err := o.node.Send(plan.Trainer, machine.Interrupt{}); err != nil {
			return &ending{err: err}
		}
		return nil
	case forced:
		o.forced(e.shares)
		return nil
	case RecoveryEvent:
		return o.decide(ctx, e)
	}
	panic(fmt.Sprintf("supervisor: news %T", news))
}

// now is the time by which the root decides.
func (o *root) now() time.Time { return o.run.time.at(o.node.Now()) }

// decide has Recovery decide, and does it.
func (o *root) decide(ctx context.Context, e RecoveryEvent) *ending {
	for _, d := range o.recovery.Handle(o.now(), e) {
		if back, ok := d.(Resume); ok {
			left, any := o.run.store.reach(back.Older > 0)
			o.run.decided(Resume{Older: left, Seed: !any, Reason: back.Reason})
		} else {
			o.run.decided(d)
		}
		switch d := d.(type) {
		case Respawn:
			if err := o.respawn(ctx, d); err != nil {
				return &ending{err: fmt.Errorf("restart of %s: %w", d.Actor, err)}
			}
		case Resume:
			return &ending{back: &back{atMost: all, older: d.Older > 0, reason: d.Reason}}
		case GiveUp:
			return &ending{err: d.Err}
		}
	}
	o.down.Store(int32(o.recovery.Down()))
	return nil
}

// reshare has the steps to come run by other shares, which have been proved. A trainer that is down is told in its
// next life.
func (o *root) reshare(s Shift) {
	o.run.decided(s)
	o.run.ledger.because(s.Shares, s.Reason)
	o.shares = s.Shares
	if err := o.node.Send(plan.Trainer, machine.Reshare{Shares: s.Shares}); err != nil {
		o.run.note(fmt.Sprintf("the trainer is not told of the shares %s now: %v", plan.SharesOf(s.To), err))
	}
}

// forced does what a fault asks for, if it can be done.
func (o *root) forced(s plan.Shares) {
	p := o.run.plan
	to, err := s.Counts()
	if err == nil {
		s = p.SharesOf(to)
		err = fits(p, s)
	}
	if err != nil {
		o.run.note(fmt.Sprintf("fault: no shift to %s: %v", s, err))
		return
	}
	o.reshare(Shift{From: p.CountsOf(o.shares), To: to, Shares: s, Reason: "a fault asks for it"})
}

// stopped takes in that the trainer has ended the run.
func (o *root) stopped(ctx context.Context, err error) *ending {
	failure, bad, crash := (*Failure)(nil), (*BadBatch)(nil), (*device.Panic)(nil)
	switch {
	case err == nil:
		return &ending{}
	case errors.As(err, &bad) && bad.Back > 0:
		from, skip := o.run.judge.Undo(bad)
		reason := fmt.Sprintf("%v; the train steps from %d on are undone and their batches skipped", bad, from)
		o.run.decided(Noted{fmt.Sprintf("roll back to a checkpoint of at most %d steps: %s", from, reason)})
		return &ending{back: &back{atMost: from, reason: reason, skip: skip}}
	case errors.As(err, &failure) && failure.Actor == plan.Trainer && errors.As(err, &crash):
		// It is an actor like any other: one that has crashed is restarted.
		now := o.now()
		o.run.timeline.Detected(now, plan.Trainer)
		return o.decide(ctx, ActorFailed{machine.Failed{
			Actor: plan.Trainer, Incarnation: o.recovery.Incarnation(plan.Trainer), Node: o.node.Name(),
			Round: failure.Round, Op: failure.Op, Cause: failure.Cause.Error(),
		}})
	}
	return &ending{err: err}
}

// tell tells of recoveries that have ended.
func (o *root) tell(ended []Recovered) {
	for i := range ended {
		o.run.options.progress(Progress{Recovered: &ended[i]})
	}
}

// respawn ends the old life of an actor and begins a new one.
func (o *root) respawn(ctx context.Context, d Respawn) error {
	o.run.restarts[d.Actor]++
	o.down.Add(1) // so that news of it is heard
	if d.From != o.node.Index() || d.Node != o.node.Index() {
		// Nodes answer by heartbeats, so several are moved at a time, and the loop goes on.
		moving, cancel := context.WithTimeout(ctx, o.run.limits.Join)
		o.moves.Add(1)
		go func() {
			defer o.moves.Done()
			defer cancel()
			o.inbox.add(moved{d, o.coordinator.Move(moving, d.Actor, d.Incarnation, d.Node)})
		}()
		return nil
	}
	if err := o.local(ctx, d); err != nil {
		return err
	}
	return o.lives(d)
}

// moved takes in what has come of a move. What is out of date by now says nothing.
func (o *root) moved(ctx context.Context, m moved) *ending {
	if m.Incarnation != o.recovery.Incarnation(m.Actor) {
		return nil
	}
	if errors.Is(m.err, context.Canceled) || errors.Is(m.err, actors.ErrLost) {
		return nil // the run ends, or the loss of the node is told besides
	}
	err := m.err
	if err == nil {
		err = o.lives(m.Respawn)
	}
	if err == nil {
		return nil
	}
	return o.decide(ctx, ActorFailed{machine.Failed{Actor: m.Actor, Incarnation: m.Incarnation, Round: o.opened, Op: "its beginning", Cause: err.Error()}})
}

// lives tells that the new life of a decision has begun.
func (o *root) lives(d Respawn) error {
	o.run.timeline.Fenced(o.now(), d)
	if d.Actor == plan.Trainer {
		if o.interrupted {
			return o.node.Send(plan.Trainer, machine.Interrupt{})
		}
		return nil
	}
	return o.node.Send(plan.Trainer, machine.Restarted{Actor: d.Actor, Incarnation: d.Incarnation})
}

// local respawns an actor of this node.
func (o *root) local(ctx context.Context, d Respawn) error {
	retiring, cancel := context.WithTimeout(context.WithoutCancel(ctx), retireWait)
	defer cancel()
	err := o.node.Retire(retiring, d.Actor)
	left := errors.Is(err, actors.ErrLeftBehind)
	if left {
		o.run.note(err.Error())
	} else if err != nil {
		return err
	}
	if err := o.run.cast.exit(d.Actor, left); err != nil {
		return err
	}
	if d.Actor == plan.Trainer {
		// What the old life has opened until it was retired, the others may have begun.
		if r, ok := o.inbox.opened(); ok {
			o.opened = r
		}
		return o.trainer(d.Incarnation)
	}
	actor, err := o.run.cast.actor(d.Actor, d.Incarnation)
	if err != nil {
		return err
	}
	return o.node.Spawn(actor)
}

// trainer begins a life of the trainer, and sets it going if it is not the first.
func (o *root) trainer(incarnation int) error {
	r := o.run
	options := []TrainerOption{WithShares(o.shares)}
	if incarnation > 0 {
		lives := map[plan.ActorID]int{}
		for _, a := range r.plan.Actors {
			lives[a.ID] = o.recovery.Incarnation(a.ID)
		}
		options = append(options, Reopen(incarnation, o.opened, lives))
		r.store.use(r.plan)
	}
	o.executor = &Executor{Plan: r.plan, Source: r.source, State: r.store, Finished: r.ledger.finished, Judge: r.judge}
	actor, err := r.cast.trainer(watched{NewTrainer(r.plan, r.rounds, options...), o.inbox}, o.executor, incarnation)
	if err == nil {
		err = o.node.Spawn(actor)
	}
	if err == nil && incarnation > 0 {
		err = o.node.Send(plan.Trainer, machine.Begin{})
	}
	return err
}
