package supervisor

import (
	"time"

	"github.com/troupe-train/troupe/plan"
)

// Result is what a run has done: the object that `train` and `launch` print with --json. All keys
// are always there.
type Result struct {
	Job        string `json:"job"`
	Parameters int    `json:"parameters"`
	// Steps is the step of the weights at the end; StepsRun those that this run committed.
	Steps    int64 `json:"steps"`
	StepsRun int64 `json:"steps_run"`
	// Stopped says that the run has ended before train.steps: it was interrupted, or told to stop at a step.
	Stopped bool `json:"stopped"`
	// Losses are nats per token; null when no step was run.
	LossFirst  *float64 `json:"loss_first"`
	LossLast   *float64 `json:"loss_last"`
	Validation []Point  `json:"validation"`
	// Tokens are those of committed steps. Seconds is the time from the first step's start to the last
	// commit; TokensPerSecond counts the steps alone, without evaluations and checkpoints.
	Tokens          int64    `json:"tokens"`
	Seconds         float64  `json:"seconds"`
	TokensPerSecond float64  `json:"tokens_per_second"`
	WeightsSHA256   string   `json:"weights_sha256"`
	GradNormLast    *float64 `json:"grad_norm_last"`
	// Bubble is the median over steps of (window - busy) / busy, where window is the longest time
	// that a stage took from its first forward to its last backward and busy the longest time that a stage computed.
	Bubble float64 `json:"bubble"`
	// Outside is the share of the time of the steps in which no operation of any actor ran. It is
	// measured where the actors take turns, at pipeline 1 and data 1, and null elsewhere.
	Outside *float64 `json:"outside_kernels"`
	// PeakBytes by actor; SentBytes by kind: activation, gradient, reduce, gather, control. MovedBytes are those
	// of SentBytes that left a process.
	PeakBytes  map[plan.ActorID]int64 `json:"peak_bytes"`
	SentBytes  map[string]int64       `json:"sent_bytes"`
	MovedBytes map[string]int64       `json:"moved_bytes"`
	// SkippedSteps, of the steps that this run committed and did not undo, made no update, because their batches were bad.
	SkippedSteps int `json:"skipped_steps"`
	// Restarts are those of actors, by failures and by moves; Resumes is how often the whole job went back to a checkpoint.
	// Recoveries are the timelines of the restarts.
	Resumes    int           `json:"resumes"`
	Recoveries []Recovered   `json:"recoveries"`
	Restarts   int           `json:"restarts"`
	Actors     []ActorResult `json:"actors"`
	// Shifts are the changes of the shares of micro-batches, by step; the run begins with those of the plan.
	Shifts []ShiftDone `json:"shifts"`
	// Checkpoint is the path of the newest that this run wrote, or empty.
	Checkpoint string `json:"checkpoint"`
}

// Point is one evaluation on held-out text, with the weights of Step steps.
type Point struct {
	Step int64   `json:"step"`
	Loss float64 `json:"loss"`
}

// ShiftDone is a change of shares: Step is the first train step that was run by them, and Shares the micro-batches of each data rank.
type ShiftDone struct {
	Step   int64  `json:"step"`
	Shares []int  `json:"shares"`
	Reason string `json:"reason"`
}

// ActorResult is what one actor did.
type ActorResult struct {
	ID          plan.ActorID `json:"id"`
	Role        string       `json:"role"`
	Node        string       `json:"node"`
	BusySeconds float64      `json:"busy_seconds"`
	PeakBytes   int64        `json:"peak_bytes"`
	Restarts    int          `json:"restarts"`
}

// Progress is something that happened in a run. Exactly one of the pointers is set.
type Progress struct {
	Step       *StepDone
	Evaluated  *Point
	Checkpoint *CheckpointDone
	// Decision is one of the supervisor, with its reason.
	Decision *string
	// Recovered is an actor that has caught up after a restart.
	Recovered *Recovered
	Note      *string
}

// StepDone is a committed step.
type StepDone struct {
	// Step counts committed steps, this one included; Of is the last.
	Step, Of int64
	Loss     float64
	GradNorm float64
	LR       float64
	Tokens   int64
	Elapsed  time.Duration
	// Skipped says why the step made no update.
	Skipped string
	// Slowest is the stage that computed longest, for Busy. Window is the longest time that a stage took
	// from its first forward to its last backward.
	Slowest      plan.ActorID
	Busy, Window time.Duration
	// Inside is the time that the operations of all actors took, added up.
	Inside time.Duration
}

// CheckpointDone is a checkpoint that is complete on disk.
type CheckpointDone struct {
	Step int64
	Path string
}
