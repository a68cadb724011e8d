package plan

import (
	"fmt"
	"strings"
)

// Fits says which actors need more memory in a run in which nobody fails than train.memory_limit gives each of them. The
// error is a *JobError.
func (p *Plan) Fits() error {
	limit := p.Job.Train.MemoryLimit
	if limit == 0 {
		return nil
	}
	var most ActorPrediction
	var over []string
	for _, a := range p.Predicted.Actors {
		if a.Peak() > most.Peak() {
			most = a
		}
		if a.Peak() > limit {
			over = append(over, fmt.Sprintf("%s %d", a.ID, a.Peak()))
		}
	}
	if len(over) == 0 {
		return nil
	}
	what, change := most.largest()
	if n := len(over) - overMax; n > 0 {
		over = append(over[:overMax], fmt.Sprintf("and %d more", n))
	}
	return &JobError{"train.memory_limit", fmt.Sprintf("is %d bytes, and these actors need more: %s; the least for this job is %d, or change %s, as most of what %s needs is %s",
		limit, strings.Join(over, ", "), most.Peak(), change, most.ID, what)}
}

// overMax is how many actors an error names.
const overMax = 4

// largest is what most of the memory of an actor is for, and what makes it smaller.
func (a ActorPrediction) largest() (what, change string) {
	most := int64(-1)
	for _, part := range []struct {
		bytes        int64
		what, change string
	}{
		{a.Parameters, "parameters", "layout.pipeline"},
		{a.Gradients, "gradients", "layout.pipeline"},
		{a.Optimizer, "the optimizer's state", "layout.data or layout.pipeline"},
		{a.Activations, "activations", "train.micro_batch or layout.pipeline"},
		{a.Messages, "messages", "train.micro_batch or layout.pipeline"},
		{a.Workspace, "workspace", "train.micro_batch"},
	} {
		if part.bytes > most {
			most, what, change = part.bytes, part.what, part.change
		}
	}
	return what, change
}
