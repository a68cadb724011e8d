package plan

import (
	"github.com/troupe-train/troupe/model"
)

// Range is the half-open interval [Lo, Hi).
type Range struct{ Lo, Hi int }

// Len is the number of integers in the range.
func (r Range) Len() int { return r.Hi - r.Lo }

// MicroBatch is a part of the batch of a step. Index counts over the whole batch.
type MicroBatch struct {
	Index int
	// Rows are sequences; Sample is the index in the batch of the first.
	Rows, Sample int
	// Data is the data rank that runs it.
	Data int
}

// BucketPlan says who owns a bucket of parameters and how it is cut over the owner's shards.
type BucketPlan struct {
	// Rank is the pipeline rank whose shards hold it: that of the first layer that uses it.
	Rank int
	// Pieces are the elements of shard (Rank, j), for every data rank j. Cuts lie on multiples of
	// NormBlock counted from the start of a parameter, so that norms can be summed in an order
	// that does not depend on the cuts. A piece may be empty.
	Pieces []Range
	// Blocks are the blocks of the bucket in order. No block spans two parameters.
	Blocks []Range
}

// NormBlock is the most elements whose squares are summed as one block of the gradient norm.
const NormBlock = 1024

// Actor is one actor of a plan and the node that runs it.
type Actor struct {
	ID   ActorID
	Node int
}

// Plan is a job resolved. It is immutable.
type Plan struct {
	Job   *Job
	Model *model.Model
	// Resume says that Init restores the state from a checkpoint that the trainer holds.
	Resume bool
	// Actors: the trainer, the stages, the shards and the mirrors, by pipeline rank and then data rank. A
	// shard that owns nothing has no mirror.
	Actors []Actor
	// Stages are the layers of each pipeline rank; a range may be empty.
	Stages  []Range
	Train   []MicroBatch
	Held    []MicroBatch
	Buckets []BucketPlan
	// Programs, by phase.
	Programs [Phases]map[ActorID]*Program
	// Predicted is what the planner expects of a step.
	Predicted Prediction
}

// Prediction is what the planner expects of one training step.
type Prediction struct {
	Actors []ActorPrediction
	// FLOPs of a step over all actors.
	FLOPs float64
	// Sent is the bytes of all messages of a step, by the kind of their value; reports are left out.
	Sent map[Kind]int64
	// Bubble is the idle share by the definition of the schedule: bubble / ideal, where ideal is the
	// work of the busiest rank (Narayanan et al. 2021, section 2.2).
	Bubble float64
}

// ActorPrediction is the memory that one actor is expected to need at its peak, in bytes, by what it is for.
type ActorPrediction struct {
	ID                                                                 ActorID
	Parameters, Gradients, Optimizer, Activations, Messages, Workspace int64
	// Recovery is the most that it may hold in a round in which an actor recovers, itself or another: at least Peak.
	Recovery int64
	// LiveMicroBatches is the most micro-batches whose saved activations are held at once.
	LiveMicroBatches int
	FLOPs            float64
}

// Peak is the sum.
func (a ActorPrediction) Peak() int64 {
	return a.Parameters + a.Gradients + a.Optimizer + a.Activations + a.Messages + a.Workspace
}

// Program returns what an actor does in a phase, by the shares of the plan.
func (p *Plan) Program(a ActorID, ph Phase) *Program { return p.Programs[ph][a] }
