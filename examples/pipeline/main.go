// Command pipeline composes the actors of a training run by hand: three pipeline stages, their optimizer
// shards and the trainer, on one node. supervisor.Run does the same, with data, checkpoints and recovery beside it.
//
//	go run ./examples/pipeline
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/stage"
	"github.com/troupe-train/troupe/supervisor"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "pipeline:", err)
		os.Exit(1)
	}
}

func run() error {
	job := plan.Defaults()
	job.Name = "pipeline"
	job.Model = plan.Model{Kind: "gpt", Layers: 4, Width: 32, Heads: 4, Context: 32}
	job.Train.Steps, job.Train.Batch, job.Train.MicroBatch = 40, 8, 2
	job.Train.Optimizer.LR, job.Train.Optimizer.MinLR = 1e-2, 1e-2
	job.Train.Evaluate.Batch = 0
	job.Layout.Pipeline = 3
	m, err := supervisor.BuildModel(job, 256)
	if err != nil {
		return err
	}
	// The plan has a program for every actor, proved complete and free of deadlock.
	p, err := plan.New(job, m, plan.Options{})
	if err != nil {
		return err
	}
	stopped := make(chan error, 1)
	node, err := actors.NewNode(actors.Options{
		Job: job.Name, Placement: p.Actors, Observer: actors.Observer{Stop: func(err error) { stopped <- err }},
	})
	if err != nil {
		return err
	}
	d := cpu.New(cpu.Options{Float: device.F32})
	for _, a := range p.Actors {
		actor, err := compose(p, a.ID, d)
		if err == nil {
			err = node.Spawn(actor)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.ID, err)
		}
	}
	if err := node.Send(plan.Trainer, machine.Begin{}); err != nil {
		return err
	}
	return errors.Join(<-stopped, node.Close(context.Background()), d.Close())
}

// compose gives an actor its machine, which decides, and its executor, stream and account, which
// are where its kernels run and what its memory is counted by.
func compose(p *plan.Plan, id plan.ActorID, d device.Device) (a actors.Actor, err error) {
	a = actors.Actor{Device: d, Account: device.NewAccount(string(id), 0)}
	switch id.Role() {
	case "stage":
		a.Machine = stage.NewMachine(p, id)
		a.Executor, err = stage.NewExecutor(p, id, d, a.Account)
	case "shard", "mirror": // a mirror keeps a second copy of what a shard has
		a.Machine = optim.NewMachine(p, id)
		a.Executor, err = optim.NewExecutor(p, id, d, a.Account)
	case "trainer":
		a.Machine = supervisor.NewTrainer(p, supervisor.Rounds{Until: p.Job.Train.Steps})
		a.Executor = &supervisor.Executor{Plan: p, Device: d, Account: a.Account, Source: poem{}, Finished: func(o supervisor.Outcome) error {
			if step := o.Round.Step + 1; o.Round.Phase == plan.TrainPhase && step%10 == 0 {
				fmt.Printf("step %d of %d: loss %.3f\n", step, p.Job.Train.Steps, o.Loss(p.Job.Train.Batch*p.Model.Context))
			}
			return nil
		}}
	default:
		err = errors.New("no such role")
	}
	if err == nil {
		a.Stream, err = d.OpenStream(string(id), 1)
	}
	return a, err
}

// poem is a Source: its windows are a pure function of their numbers. The trainer has no State, so nothing is kept.
type poem struct{}

const text = "All the world's a stage, and all the men and women merely players; they have their exits and their entrances. "

func (poem) Window(i int64, window []int32) {
	for t := range window {
		window[t] = int32(text[(7*int(i)+t)%len(text)])
	}
}

func (p poem) Held(i int, window []int32) { p.Window(int64(i), window) }
