package supervisor

import (
	"fmt"

	"github.com/troupe-train/troupe/plan"
)

// remarks are lines on what a job says that is of no effect, or that may surprise, in a run that starts at step first;
// launched says that it is one over several nodes.
func remarks(p *plan.Plan, first int64, launched bool) []string {
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf("note: "+format, args...)) }
	job := p.Job
	if first > 0 && job.Train.Steps <= first {
		say("train.steps is %d, and the checkpoint is of step %d: there is nothing to train", job.Train.Steps, first)
	}
	if s := job.Cluster.Spares; s > 0 && !launched {
		say("cluster.spares is %d, which is of no effect in a run in one process", s)
	}
	if job.Layout.Stages != nil && len(job.Layout.Stages) == 0 {
		say("layout.stages is an empty list, which is of no effect: the layers are divided by their cost")
	}
	if limit := job.Train.MemoryLimit; limit > 0 {
		var most plan.ActorPrediction
		for _, a := range p.Predicted.Actors {
			if a.Recovery > most.Recovery {
				most = a
			}
		}
		if limit < most.Recovery {
			say("train.memory_limit is %d bytes, and %s may need %d when an actor recovers (%d when none does)", limit, most.ID, most.Recovery, most.Peak())
		}
	}
	return lines
}
