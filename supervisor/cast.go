package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/stage"
)

// cast holds what the actors of one node live on: the device, and for each actor a stream, an account and an executor.
// Close it after the node. It is safe for concurrent use.
type cast struct {
	plan   *plan.Plan
	device device.Device
	own    bool // the device is the cast's, to close

	mu      sync.Mutex
	threads map[plan.ActorID]int
	members map[plan.ActorID]*member
	left    bool // an operation that does not end was left behind
}

// member is what one life lives on.
type member struct {
	stream   device.Stream
	executor interface{ Close() } // nil for the trainer
	free     func()               // what was set aside for its account
}

// close ends the stream, then the executor that works on it, then its memory.
func (m *member) close() error {
	err := m.stream.Close()
	if m.executor != nil {
		m.executor.Close()
	}
	m.free()
	return err
}

func newCast(p *plan.Plan, d device.Device) *cast {
	c := &cast{plan: p, device: d, threads: map[plan.ActorID]int{}, members: map[plan.ActorID]*member{}}
	if d == nil {
		c.device, c.own = cpu.New(cpu.Options{Float: device.F32}), true
	}
	return c
}

// share splits the threads of a node over the stages that the plan places on it. Stages compute at the same time, and
// shards while stages wait: they have the budget of their stage. Mirrors update while stages compute, and nobody waits
// for them: one thread disturbs least.
func (c *cast) share(node int) {
	var stages []plan.ActorID
	for _, a := range c.plan.Actors {
		if a.Node == node && a.ID.Role() == "stage" {
			stages = append(stages, a.ID)
		}
	}
	for i, n := range budgets(c.plan.Job.Train.Threads, len(stages)) {
		p, d, _ := stages[i].Rank()
		c.threads[stages[i]] = n
		c.threads[plan.ShardID(p, d)] = n
		c.threads[plan.MirrorID(p, d)] = 1
	}
}

// spawn brings the actors that the plan places on a node to life, but for the trainer.
func (c *cast) spawn(node *actors.Node) error {
	c.share(node.Index())
	for _, a := range c.plan.Actors {
		if a.Node != node.Index() || a.ID == plan.Trainer {
			continue
		}
		actor, err := c.actor(a.ID, 0)
		if err == nil {
			err = node.Spawn(actor)
		}
		if err != nil {
			if errors.As(err, new(*device.OutOfMemory)) {
				return err // it names the actor
			}
			return fmt.Errorf("%s: %w", a.ID, err)
		}
	}
	return nil
}

// actor makes everything that a life of a stage, shard or mirror needs.
func (c *cast) actor(id plan.ActorID, incarnation int) (actors.Actor, error) {
	account, free, err := c.account(id)
	if err != nil {
		return actors.Actor{}, err
	}
	a := actors.Actor{Account: account, Incarnation: incarnation}
	var executor interface{ Close() }
	switch id.Role() {
	case "stage":
		var x *stage.Executor
		if x, err = stage.NewExecutor(c.plan, id, c.device, account); err == nil {
			a.Machine, a.Executor, executor = stage.NewMachine(c.plan, id, machine.Incarnation(incarnation)), x, x
		}
	case "shard", "mirror":
		var x *optim.Executor
		if x, err = optim.NewExecutor(c.plan, id, c.device, account); err == nil {
			a.Machine, a.Executor, executor = optim.NewMachine(c.plan, id, machine.Incarnation(incarnation)), x, x
		}
	default:
		err = fmt.Errorf("no role %q", id.Role())
	}
	if err != nil {
		free()
		return actors.Actor{}, err
	}
	return c.enter(a, executor, free)
}

// account opens the account of a life, with the memory set aside that the plan expects it to hold at
// most. free gives that back.
func (c *cast) account(id plan.ActorID) (account *device.Account, free func(), err error) {
	account, free = device.NewAccount(string(id), c.plan.Job.Train.MemoryLimit), func() {}
	d, ok := c.device.(device.Reserver)
	i := slices.IndexFunc(c.plan.Predicted.Actors, func(a plan.ActorPrediction) bool { return a.ID == id })
	if ok && i >= 0 {
		free, err = d.Reserve(account, c.plan.Predicted.Actors[i].Peak())
	}
	return account, free, err
}

// trainer makes what a life of the trainer needs. m is its machine.
func (c *cast) trainer(m machine.Machine, x *Executor, incarnation int) (actors.Actor, error) {
	account, free, err := c.account(plan.Trainer)
	if err != nil {
		return actors.Actor{}, err
	}
	x.Device, x.Account = c.device, account
	return c.enter(actors.Actor{Machine: m, Executor: x, Account: account, Incarnation: incarnation}, nil, free)
}

// enter gives a life its stream, and takes over what it lives on.
func (c *cast) enter(a actors.Actor, executor interface{ Close() }, free func()) (_ actors.Actor, err error) {
	id := a.Machine.ID()
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if err != nil {
			if executor != nil {
				executor.Close()
			}
			free()
		}
	}()
	if c.members[id] != nil {
		return a, fmt.Errorf("%s lives already", id)
	}
	threads := c.threads[id]
	if threads == 0 { // it comes from another node
		threads = budgets(c.plan.Job.Train.Threads, len(c.members)+1)[0]
	}
	stream, err := c.device.OpenStream(string(id), threads)
	if err != nil {
		return a, err
	}
	c.members[id] = &member{stream, executor, free}
	a.Device, a.Stream = c.device, stream
	return a, nil
}

// exit gives back what a life lived on that was retired. If it was left behind, so is that.
func (c *cast) exit(id plan.ActorID, leftBehind bool) error {
	c.mu.Lock()
	m := c.members[id]
	delete(c.members, id)
	c.left = c.left || leftBehind
	c.mu.Unlock()
	if m == nil || leftBehind {
		return nil
	}
	return m.close()
}

// closeWait is how long the actors of a node may take to end.
const closeWait = 10 * time.Second

// end closes a node and then what its actors lived on, and tells what trouble it had with others. It
// does not wait for ever: an operation that hangs is named and left behind.
func (c *cast) end(node *actors.Node, log func(string)) error {
	troubles := node.Troubles()
	for _, kind := range slices.Sorted(maps.Keys(troubles)) {
		log(fmt.Sprintf("%s: %d in all", kind, troubles[kind]))
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if err := node.Close(ctx); err != nil {
		return err
	}
	return c.close()
}

// close ends all streams and executors, then the device.
func (c *cast) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, id := range sortedIDs(c.members) {
		errs = append(errs, c.members[id].close())
	}
	if c.own && !c.left {
		errs = append(errs, c.device.Close())
	}
	return errors.Join(errs...)
}

var _ machine.Machine = (*Trainer)(nil)
