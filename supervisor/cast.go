package supervisor

import (
	"errors"
	"fmt"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/stage"
)

// cast holds what the actors of one node live on: the device, a stream and an account each.
// Close it after the node.
type cast struct {
	plan    *plan.Plan
	device  device.Device
	own     bool // the device is the cast's, to close
	threads map[plan.ActorID]int
	closers []func() error
}

func newCast(p *plan.Plan, d device.Device) *cast {
	c := &cast{plan: p, device: d}
	if d == nil {
		c.device, c.own = cpu.New(cpu.Options{Float: device.F32}), true
	}
	return c
}

// spawn brings the actors that the plan places on a node to life. trainer is nil where the trainer
// is on another node.
func (c *cast) spawn(node *actors.Node, trainer *Trainer, x *Executor) error {
	var stages []plan.ActorID
	for _, a := range c.plan.Actors {
		if a.Node == node.Index() && a.ID.Role() == "stage" {
			stages = append(stages, a.ID)
		}
	}
	// Stages compute at the same time, and shards while stages wait: a shard has the budget of its stage.
	c.threads = map[plan.ActorID]int{}
	for i, n := range budgets(c.plan.Job.Train.Threads, len(stages)) {
		p, d, _ := stages[i].Rank()
		c.threads[stages[i]] = n
		c.threads[plan.ShardID(p, d)] = n
	}
	for _, a := range c.plan.Actors {
		if a.Node != node.Index() {
			continue
		}
		if err := c.bring(node, a.ID, trainer, x); err != nil {
			return fmt.Errorf("%s: %w", a.ID, err)
		}
	}
	return nil
}

func (c *cast) bring(node *actors.Node, id plan.ActorID, trainer *Trainer, x *Executor) error {
	account := device.NewAccount(string(id), c.plan.Job.Train.MemoryLimit)
	actor := actors.Actor{Device: c.device, Account: account}
	var err error
	switch id.Role() {
	case "trainer":
		x.Device, x.Account = c.device, account
		actor.Machine, actor.Executor = trainer, x
	case "stage":
		var e *stage.Executor
		if e, err = stage.NewExecutor(c.plan, id, c.device, account); err != nil {
			return err
		}
		c.closers = append(c.closers, func() error { e.Close(); return nil })
		actor.Machine, actor.Executor = stage.NewMachine(c.plan, id), e
	case "shard":
		var e *optim.Executor
		if e, err = optim.NewExecutor(c.plan, id, c.device, account); err != nil {
			return err
		}
		c.closers = append(c.closers, func() error { e.Close(); return nil })
		actor.Machine, actor.Executor = optim.NewMachine(c.plan, id), e
	default:
		return fmt.Errorf("no role %q", id.Role())
	}
	if actor.Stream, err = c.device.OpenStream(string(id), max(1, c.threads[id])); err != nil {
		return err
	}
	c.closers = append(c.closers, actor.Stream.Close)
	return node.Spawn(actor)
}

// close ends streams, then executors, then the device.
func (c *cast) close() error {
	var errs []error
	for i := len(c.closers) - 1; i >= 0; i-- {
		errs = append(errs, c.closers[i]())
	}
	if c.own {
		errs = append(errs, c.device.Close())
	}
	return errors.Join(errs...)
}

var _ machine.Machine = (*Trainer)(nil)
