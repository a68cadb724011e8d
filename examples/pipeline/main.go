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
	"github.com/troupe-train/troupe/model"
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
	weights := &weights{plan: p}
	for _, a := range p.Actors {
		actor, err := compose(p, a.ID, d, weights)
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
	err = errors.Join(<-stopped, node.Close(context.Background()), d.Close())
	fmt.Println("weights", weights.hash)
	return err
}

// compose gives an actor its machine, which decides, and its executor, stream and account, which
// are where its kernels run and what its memory is counted by.
func compose(p *plan.Plan, id plan.ActorID, d device.Device, w *weights) (a actors.Actor, err error) {
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
		a.Executor = &supervisor.Executor{Plan: p, Device: d, Account: a.Account, Source: poem{}, State: w, Finished: show(p)}
	default:
		err = errors.New("no such role")
	}
	if err == nil {
		a.Stream, err = d.OpenStream(string(id), 1)
	}
	return a, err
}

// show prints the loss of every tenth step.
func show(p *plan.Plan) func(supervisor.Outcome) error {
	return func(o supervisor.Outcome) error {
		if step := o.Round.Step + 1; o.Round.Phase == plan.TrainPhase && step%10 == 0 {
			fmt.Printf("step %d of %d: loss %.3f\n", step, p.Job.Train.Steps, o.Loss(p.Job.Train.Batch*p.Model.Context))
		}
		return nil
	}
}

// poem is a Source: its windows are a pure function of their numbers.
type poem struct{}

const text = "All the world's a stage, and all the men and women merely players; they have their exits and their entrances. "

func (poem) Window(i int64, window []int32) {
	for t := range window {
		window[t] = int32(text[(7*int(i)+t)%len(text)])
	}
}

func (p poem) Held(i int, window []int32) { p.Window(int64(i), window) }

// weights is a State that keeps nothing but the hash of the weights.
type weights struct {
	plan *plan.Plan
	hash string
}

func (w *weights) Restore(plan.ActorID) ([]float32, error) {
	return nil, errors.New("there is nothing to resume from")
}

// Keep puts the pieces of the shards together.
func (w *weights) Keep(_ context.Context, _ int64, states map[plan.ActorID][]float32) error {
	buckets := w.plan.Model.Buckets()
	vectors := make([][]float32, len(buckets))
	for i, b := range buckets {
		vectors[i] = make([]float32, b.Len)
	}
	for id, state := range states {
		rank, d, _ := id.Rank()
		for _, part := range w.plan.Parts(rank, d) {
			state = state[copy(vectors[part.Bucket][part.Range.Lo:part.Range.Hi], state):]
		}
	}
	w.hash = model.Hash(w.plan.Model, func(bucket int) []float32 { return vectors[bucket] })
	return nil
}
