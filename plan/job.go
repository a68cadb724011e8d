package plan

// Job is the file that a user writes.
type Job struct {
	Name       string     `yaml:"name"`
	Model      Model      `yaml:"model"`
	Data       Data       `yaml:"data"`
	Train      Train      `yaml:"train"`
	Layout     Layout     `yaml:"layout"`
	Save       Save       `yaml:"save"`
	Supervisor Supervisor `yaml:"supervisor"`
}

// Model says what is trained.
type Model struct {
	Kind    string  `yaml:"kind"`
	Layers  int     `yaml:"layers"`
	Width   int     `yaml:"width"`
	Heads   int     `yaml:"heads"`
	Context int     `yaml:"context"`
	Vocab   string  `yaml:"vocab"` // "bytes", or the path of a saved BPE vocabulary
	Dropout float64 `yaml:"dropout"`
}

// Data says what it is trained on.
type Data struct {
	Text    string  `yaml:"text"`  // a file or folder; $VARIABLES are expanded
	Match   string  `yaml:"match"` // a pattern for the names of files
	Holdout float64 `yaml:"holdout"`
	// LimitBytes, if not 0, reads no more than this much text.
	LimitBytes int64 `yaml:"limit_bytes"`
}

// Train says how.
type Train struct {
	Steps      int64     `yaml:"steps"`
	Batch      int       `yaml:"batch"`
	MicroBatch int       `yaml:"micro_batch"`
	Optimizer  Optimizer `yaml:"optimizer"`
	Seed       uint64    `yaml:"seed"`
	Accumulate string    `yaml:"accumulate"` // tree
	Threads    int       `yaml:"threads"`    // 0: all cores
	// MemoryLimit is bytes for each actor; 0: no limit.
	MemoryLimit int64    `yaml:"memory_limit"`
	Evaluate    Evaluate `yaml:"evaluate"`
}

// Evaluate says when the held-out loss is measured.
type Evaluate struct {
	Every int64 `yaml:"every"` // steps; 0: only at the end
	Batch int   `yaml:"batch"` // sequences; 0: none
}

// Optimizer holds the hyper-parameters.
type Optimizer struct {
	Kind        string  `yaml:"kind"` // adamw, sgd
	LR          float64 `yaml:"lr"`
	MinLR       float64 `yaml:"min_lr"`
	Warmup      int64   `yaml:"warmup"`
	Decay       string  `yaml:"decay"` // none, cosine, linear
	WeightDecay float64 `yaml:"weight_decay"`
	Beta1       float64 `yaml:"beta1"`
	Beta2       float64 `yaml:"beta2"`
	Epsilon     float64 `yaml:"epsilon"`
	Momentum    float64 `yaml:"momentum"`
	Clip        float64 `yaml:"clip"` // 0: off
}

// Layout holds the degrees.
type Layout struct {
	Data     int    `yaml:"data"`
	Tensor   int    `yaml:"tensor"`
	Pipeline int    `yaml:"pipeline"`
	Chunks   int    `yaml:"chunks"`
	Sequence int    `yaml:"sequence"`
	Expert   int    `yaml:"expert"`
	Zero     int    `yaml:"zero"`
	Schedule string `yaml:"schedule"` // 1f1b, gpipe
	// Stages, if given, are the number of layers of each pipeline rank, embedding and head included.
	Stages []int `yaml:"stages"`
}

// Save says where checkpoints go.
type Save struct {
	Dir   string `yaml:"dir"`
	Every int64  `yaml:"every"` // steps; 0: only at the end
	Keep  int    `yaml:"keep"`  // checkpoints kept; 0: all
}

// Supervisor says how failures are found. Times are seconds.
type Supervisor struct {
	Heartbeat float64 `yaml:"heartbeat"`
	Suspect   int     `yaml:"suspect"`  // heartbeats missed
	Deadline  float64 `yaml:"deadline"` // without any progress
	Join      float64 `yaml:"join"`     // for start-up
}
