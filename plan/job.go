package plan

import "github.com/troupe-train/troupe/device"

// Job is the file that a user writes. Parse reads it, Defaults says what stands for a key that is
// not given, and Validate says whether the whole is legal.
type Job struct {
	// Name stands in message names and log lines: letters, digits, - and _. Default: the name of the file without its ending.
	Name       string     `yaml:"name"`
	Model      Model      `yaml:"model"`
	Data       Data       `yaml:"data"`
	Train      Train      `yaml:"train"`
	Layout     Layout     `yaml:"layout"`
	Save       Save       `yaml:"save"`
	Supervisor Supervisor `yaml:"supervisor"`
	Cluster    Cluster    `yaml:"cluster"`
}

// Model says what is trained.
type Model struct {
	Kind    string `yaml:"kind"`    // gpt, llama; default gpt
	Layers  int    `yaml:"layers"`  // transformer blocks, without embedding and head; required
	Width   int    `yaml:"width"`   // elements of a token's activation; required
	Heads   int    `yaml:"heads"`   // attention heads; must divide the width; required
	Context int    `yaml:"context"` // tokens of a sequence; required
	Vocab   string `yaml:"vocab"`   // "bytes", or the path of a saved BPE vocabulary; default bytes
	// Dropout is the share of elements dropped, in [0, 1). Default 0.
	Dropout float64 `yaml:"dropout"`
}

// Data says what it is trained on.
type Data struct {
	Text  string `yaml:"text"`  // a file or folder; $VARIABLES are expanded; required
	Match string `yaml:"match"` // a pattern for the names of files; default *
	// Holdout is the share of the text that is kept for evaluation, in [0, 1). Default 0.1.
	Holdout float64 `yaml:"holdout"`
	// LimitBytes, if not 0, reads no more than this much text. Default 0.
	LimitBytes int64 `yaml:"limit_bytes"`
}

// Train says how.
type Train struct {
	Steps int64 `yaml:"steps"` // required
	Batch int   `yaml:"batch"` // sequences of a step; required
	// MicroBatch is the sequences that run through the pipeline together; the last of a batch may
	// be shorter. There must be at least one micro-batch for each data rank. Required.
	MicroBatch int       `yaml:"micro_batch"`
	Optimizer  Optimizer `yaml:"optimizer"`
	Seed       uint64    `yaml:"seed"`       // default 1
	Accumulate string    `yaml:"accumulate"` // tree; default tree
	// Precision is what stages store weights and activations in: f32; or bf16, with sums, gradients of weights and what the
	// optimizer keeps in float32. Default f32.
	Precision string `yaml:"precision"`
	// Threads of each process. 0: all cores, or a part of them where several processes are launched on one machine. A stage never
	// computes on more than there are cores. Default 0.
	Threads int `yaml:"threads"`
	// MemoryLimit is bytes for each actor; 0: no limit. Default 0.
	MemoryLimit int64    `yaml:"memory_limit"`
	Evaluate    Evaluate `yaml:"evaluate"`
}

// The precisions of Train.
const F32, BF16 = "f32", "bf16"

// Stored is the type that stages store weights and activations in, on a device of that Float type.
func (t Train) Stored(float device.DType) device.DType {
	if t.Precision == BF16 {
		return device.BF16
	}
	return float
}

// Evaluate says when the held-out loss is measured.
type Evaluate struct {
	Every int64 `yaml:"every"` // steps; 0: only at the end; default 0
	Batch int   `yaml:"batch"` // sequences; 0: none; default 32
}

// Optimizer holds the hyper-parameters.
type Optimizer struct {
	Kind string  `yaml:"kind"` // adamw, sgd; default adamw
	LR   float64 `yaml:"lr"`   // default 3e-4
	// MinLR is where the decay ends. Default -1, which Validate replaces by lr/10 with a decay and
	// by lr without one.
	MinLR       float64 `yaml:"min_lr"`
	Warmup      int64   `yaml:"warmup"`       // steps; default 0
	Decay       string  `yaml:"decay"`        // none, cosine, linear; default none
	WeightDecay float64 `yaml:"weight_decay"` // default 0
	Beta1       float64 `yaml:"beta1"`        // adamw; default 0.9
	Beta2       float64 `yaml:"beta2"`        // adamw; default 0.95
	Epsilon     float64 `yaml:"epsilon"`      // adamw; default 1e-8
	Momentum    float64 `yaml:"momentum"`     // sgd; default 0
	Clip        float64 `yaml:"clip"`         // the largest global norm of the gradient; 0: off; default 1
}

// Layout holds the degrees. All default to 1.
type Layout struct {
	Data     int    `yaml:"data"`
	Tensor   int    `yaml:"tensor"` // 1
	Pipeline int    `yaml:"pipeline"`
	Chunks   int    `yaml:"chunks"`   // 1
	Sequence int    `yaml:"sequence"` // 1
	Expert   int    `yaml:"expert"`   // 1
	Zero     int    `yaml:"zero"`     // 1: optimizer state is cut over the data ranks
	Schedule string `yaml:"schedule"` // 1f1b, gpipe; default 1f1b
	// Stages, if given, are the number of layers of each pipeline rank, embedding and head
	// included. A 0 is a rank that only passes activations on. Default: balanced by cost.
	Stages []int `yaml:"stages"`
	// Shares, if given, are the micro-batches of a step that each data rank runs, at least 1 each, for hardware of
	// several speeds. Default: as even as possible.
	Shares []int `yaml:"shares"`
}

// Save says where checkpoints go.
type Save struct {
	// Dir is the folder of the checkpoints and the journal. A run whose folder is removed or replaced in its middle saves what it
	// has there again, or beside it in a folder that ends in .rescued, and ends. Default: nothing is written.
	Dir   string `yaml:"dir"`
	Every int64  `yaml:"every"` // steps; 0: only at the end; default 0
	Keep  int    `yaml:"keep"`  // checkpoints kept; 0: all; default 0
}

// Supervisor says how failures are found and what is done about them. Times are seconds.
type Supervisor struct {
	Heartbeat float64 `yaml:"heartbeat"` // default 0.2
	Suspect   int     `yaml:"suspect"`   // heartbeats missed until a node is asked in another way, and lost if it does not answer; default 5
	Deadline  float64 `yaml:"deadline"`  // without any progress; what a disk does not take of the journal is tried again for half of it; default 60
	Join      float64 `yaml:"join"`      // for nodes to come; a job that goes back to a checkpoint then goes on with those that are there; default 30
	// Mirror keeps the state of every shard twice, so that a shard can be restarted. It says nothing where one stage on
	// one node is the whole job: what takes its shard takes the process. Default true.
	Mirror bool `yaml:"mirror"`
	// Restarts of one actor are at most this many within Window seconds. What fails more often is moved, then the
	// job resumes from a checkpoint. Default 5.
	Restarts int     `yaml:"restarts"`
	Window   float64 `yaml:"window"` // default 60
	// Backoff is the pause before the second restart of an actor within the window. It doubles with every
	// further one. Default 0.1.
	Backoff float64 `yaml:"backoff"`
	// Resumes is how often the job goes back to a checkpoint without getting further than before. Default 2.
	Resumes  int      `yaml:"resumes"`
	BadBatch BadBatch `yaml:"bad_batch"`
	Slow     Slow     `yaml:"slow"`
}

// BadBatch says what is done about a step whose loss or gradient is not finite, or whose loss is a spike.
type BadBatch struct {
	// Policy is stop; skip: the step commits without an update; or rollback: back to a checkpoint, then skip it and the Back steps before. Default stop.
	Policy string `yaml:"policy"`
	// Spike is how many standard deviations above the mean of the last Window committed losses make a spike; 0: none do. Default 0.
	Spike float64 `yaml:"spike"`
	// Window is that many steps; as many in a row without an update end the run. Default 32.
	Window int `yaml:"window"`
	// Back is the number of steps before the bad one that a rollback undoes; their batches are skipped with the bad one. Default 1.
	Back int64 `yaml:"back"`
}

// Slow says what is done about a stage that computes slower than the others.
type Slow struct {
	// Policy is off; warn; move: to another node; or shift: micro-batches to the other data ranks, by their speed. Default warn.
	Policy string  `yaml:"policy"`
	Factor float64 `yaml:"factor"` // times as slow as the median of the others; default 2
	Steps  int     `yaml:"steps"`  // in a row, and for a quarter of a second at least; default 5
}

// Cluster says how nodes are used.
type Cluster struct {
	// Spares is the number of nodes that are kept without actors until another node is lost. Default 0.
	Spares int `yaml:"spares"`
}

// Defaults is a job with the defaults of all keys that have one.
func Defaults() *Job {
	return &Job{
		Model: Model{Kind: "gpt", Vocab: "bytes"},
		Data:  Data{Match: "*", Holdout: 0.1},
		Train: Train{
			Seed:       1,
			Accumulate: "tree",
			Precision:  F32,
			Optimizer: Optimizer{
				Kind: "adamw", LR: 3e-4, MinLR: -1, Decay: "none",
				Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, Clip: 1,
			},
			Evaluate: Evaluate{Batch: 32},
		},
		Layout: Layout{Data: 1, Tensor: 1, Pipeline: 1, Chunks: 1, Sequence: 1, Expert: 1, Zero: 1, Schedule: "1f1b"},
		Supervisor: Supervisor{
			Heartbeat: 0.2, Suspect: 5, Deadline: 60, Join: 30, Mirror: true, Restarts: 5, Window: 60, Backoff: 0.1, Resumes: 2,
			BadBatch: BadBatch{Policy: "stop", Window: 32, Back: 1},
			Slow:     Slow{Policy: "warn", Factor: 2, Steps: 5},
		},
	}
}

// JobError says what is wrong with a job: Where is the file and line, the --set argument or the
// key; Problem is one line with what was given and what is legal.
type JobError struct{ Where, Problem string }

func (e *JobError) Error() string { return e.Where + ": " + e.Problem }
