package sim

import (
	"fmt"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/supervisor"
)

type executor = machine.Executor

// kernelBook is the book of a bench that runs the kernels.
type kernelBook struct{ shelf }

func (b *kernelBook) begin(p *plan.Plan) { b.plan = p }
func (b *kernelBook) snapshot() int64    { return b.step }

func (b *kernelBook) trainer(r *run, a *device.Account) (executor, error) {
	return &supervisor.Executor{
		Plan: r.plan, Device: r.config.Device, Account: a, Source: fedSource{r}, State: b,
		Finished: func(o supervisor.Outcome) error {
			what := fmt.Sprintf("losses %x", o.Losses)
			if o.Round.Phase == plan.TrainPhase {
				what += fmt.Sprintf(", norm %x", o.Norm)
			}
			return r.finished(o.Round, what)
		},
	}, nil
}

func (b *kernelBook) actor(r *run, l Life) (Actor, error) {
	p := r.plan
	if r.config.Plant == ForgottenKey && l.Incarnation > 0 {
		job := *p.Job
		job.Train.Seed++
		other := *p
		other.Job = &job
		p = &other
	}
	return NewActor(p, r.config.Device, l.ID, l.Incarnation)
}

// fedSource counts the training samples that a life of the trainer reads.
type fedSource struct{ r *run }

func (s fedSource) Window(i int64, dst []int32) {
	s.r.fed[i]++
	s.r.config.Source.Window(i, dst)
}

func (s fedSource) Held(j int, dst []int32) { s.r.config.Source.Held(j, dst) }
