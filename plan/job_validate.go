package plan

import (
	"fmt"
	"math"
	"path"
	"strings"

	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan/schedule"
)

// Bounds that keep every size below what an int64 of bytes holds, and every plan below what a
// machine can make in seconds.
const (
	maxName       = 64
	maxLayers     = 4096
	maxWidth      = 1 << 20
	maxContext    = 1 << 24
	maxBatch      = 1 << 20
	maxMicro      = 1 << 14 // micro-batches of a step
	maxDegree     = 1024
	maxActors     = 4096
	maxWeights    = 1 << 44 // 12 layers width^2
	maxActivation = 1 << 40 // elements of one tensor of a micro-batch
	maxSteps      = 1 << 48
	maxBytes      = 1 << 60
	maxSeconds    = 1e6
)

// Validate says whether the job is legal as far as that can be said without the model and the
// data, and replaces a MinLR of -1 by what it stands for. The error is a *JobError for the first
// key that is wrong: one line with the numbers given and the nearest legal ones.
func (j *Job) Validate() error {
	for _, check := range []func() *JobError{j.checkName, j.checkModel, j.checkData, j.checkTrain, j.checkOptimizer, j.checkLayout, j.checkSums, j.checkSave, j.checkSupervisor} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func bad(key, format string, args ...any) *JobError {
	return &JobError{key, fmt.Sprintf(format, args...)}
}

// whole checks a whole number against its bounds.
func whole[T int | int64](key string, n, lo, hi T) *JobError {
	if n < lo || n > hi {
		return bad(key, "is %d; %d to %d are legal, the nearest is %d", n, lo, hi, min(max(n, lo), hi))
	}
	return nil
}

// needed is whole for a key that has no default, and must be 1 or more.
func needed[T int | int64](key string, n, hi T) *JobError {
	if n == 0 {
		return bad(key, "is missing, or 0; 1 to %d are legal, the nearest is 1", hi)
	}
	return whole(key, n, 1, hi)
}

// choice checks a word against the legal ones.
func choice(key, given string, legal ...string) *JobError {
	for _, l := range legal {
		if given == l {
			return nil
		}
	}
	msg := fmt.Sprintf("is %q; legal: %s", given, strings.Join(legal, ", "))
	if near, ok := nearest(given, legal); ok {
		msg += fmt.Sprintf("; did you mean %s?", near)
	}
	return bad(key, "%s", msg)
}

// share checks a number in [0, 1).
func share(key string, x float64) *JobError {
	if !(x >= 0 && x < 1) {
		return bad(key, "is %g; numbers from 0 up to but not including 1 are legal", x)
	}
	return nil
}

// positive checks a finite number of at least 0, or above 0 if zero is not legal.
func positive(key string, x float64, zero bool) *JobError {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return bad(key, "is %g; finite numbers are legal", x)
	case x < 0 && zero:
		return bad(key, "is %g; numbers from 0 up are legal", x)
	case x <= 0 && !zero:
		return bad(key, "is %g; numbers above 0 are legal", x)
	}
	return nil
}

func first(errs ...*JobError) *JobError {
	for _, e := range errs {
		if e != nil {
			return e
		}
	}
	return nil
}

func legalInName(r rune) bool {
	return r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

func (j *Job) checkName() *JobError {
	illegal := strings.ContainsFunc(j.Name, func(r rune) bool { return !legalInName(r) })
	if j.Name == "" || len(j.Name) > maxName || illegal {
		return bad("name", "is %q; 1 to %d letters, digits, - and _ are legal", j.Name, maxName)
	}
	return nil
}

func (j *Job) checkModel() *JobError {
	m := j.Model
	if err := first(
		choice("model.kind", m.Kind, model.Kinds()...),
		needed("model.layers", m.Layers, maxLayers),
		needed("model.width", m.Width, maxWidth),
		needed("model.heads", m.Heads, m.Width),
		needed("model.context", m.Context, maxContext),
		share("model.dropout", m.Dropout),
	); err != nil {
		return err
	}
	if m.Width%m.Heads != 0 {
		lo, hi := nearestDivisors(m.Width, m.Heads)
		return bad("model.heads", "is %d, which does not divide model.width %d; the nearest legal heads are %d and %d", m.Heads, m.Width, lo, hi)
	}
	// What a kind asks for beyond that, it says when a model of one layer is made; the vocabulary is not known yet.
	if _, err := model.Build(m.Kind, model.Config{Layers: 1, Width: m.Width, Heads: m.Heads, Context: m.Context, Vocab: 1, Dropout: m.Dropout}); err != nil {
		key, text, found := strings.Cut(err.Error(), ": ")
		if !found {
			key, text = "model", key
		}
		return bad(key, "%s", text)
	}
	if m.Vocab == "" {
		return bad("model.vocab", `is empty; "bytes" or the path of a saved vocabulary is legal`)
	}
	if w := int64(m.Width); int64(m.Layers) > maxWeights/(12*w*w) {
		return bad("model.layers", "%d with model.width %d makes about %.3g parameters; at most %.3g are legal, so at most %d layers of this width",
			m.Layers, m.Width, 12*float64(m.Layers)*float64(w)*float64(w), float64(maxWeights), maxWeights/(12*w*w))
	}
	return nil
}

// nearestDivisors are the divisors of n next to d, below and above.
func nearestDivisors(n, d int) (lo, hi int) {
	for lo = d; n%lo != 0; lo-- {
	}
	for hi = d; n%hi != 0; hi++ {
	}
	return lo, hi
}

func (j *Job) checkData() *JobError {
	if j.Data.Text == "" {
		return bad("data.text", "is missing, or empty; the path of a file or folder of text is legal")
	}
	if j.Data.Match == "" {
		return bad("data.match", "is empty; a pattern for the names of files is legal, such as *.txt; * takes all")
	}
	if _, err := path.Match(j.Data.Match, ""); err != nil {
		return bad("data.match", "is %q, which is no pattern; legal is, for example, *.go", j.Data.Match)
	}
	if e := j.Train.Evaluate.Batch; e > 0 && j.Data.Holdout == 0 {
		return bad("train.evaluate.batch", "is %d, but data.holdout is 0, so nothing is held out; data.holdout above 0 or train.evaluate.batch 0 is legal", e)
	}
	return first(share("data.holdout", j.Data.Holdout), whole("data.limit_bytes", j.Data.LimitBytes, 0, maxBytes))
}

func (j *Job) checkTrain() *JobError {
	t := j.Train
	if err := first(
		needed("train.steps", t.Steps, maxSteps),
		needed("train.batch", t.Batch, maxBatch),
		needed("train.micro_batch", t.MicroBatch, maxBatch),
		choice("train.accumulate", t.Accumulate, "tree"),
		choice("train.precision", t.Precision, F32, BF16),
		whole("train.threads", t.Threads, 0, 1<<16),
		whole("train.memory_limit", t.MemoryLimit, 0, maxBytes),
		whole("train.evaluate.every", t.Evaluate.Every, 0, maxSteps),
		whole("train.evaluate.batch", t.Evaluate.Batch, 0, maxBatch),
	); err != nil {
		return err
	}
	if t.MicroBatch > t.Batch {
		return bad("train.micro_batch", "is %d, more than train.batch %d; 1 to %d are legal", t.MicroBatch, t.Batch, t.Batch)
	}
	if m := ceil(max(t.Batch, t.Evaluate.Batch), t.MicroBatch); m > maxMicro {
		return bad("train.micro_batch", "is %d, which cuts %d sequences into %d micro-batches; at most %d micro-batches are legal, so train.micro_batch %d or more",
			t.MicroBatch, max(t.Batch, t.Evaluate.Batch), m, maxMicro, ceil(max(t.Batch, t.Evaluate.Batch), maxMicro))
	}
	if t.Evaluate.Batch == 0 && t.Evaluate.Every > 0 {
		return bad("train.evaluate.every", "is %d, but train.evaluate.batch is 0; train.evaluate.every 0 or train.evaluate.batch above 0 is legal", t.Evaluate.Every)
	}
	c, w := int64(max(j.Model.Context, 1)), int64(max(4*j.Model.Width, j.Model.Context, 1))
	if int64(t.MicroBatch)*c > maxActivation/w {
		return bad("train.micro_batch", "%d with model.context %d and model.width %d makes tensors of more than %d elements; train.micro_batch up to %d is legal",
			t.MicroBatch, j.Model.Context, j.Model.Width, int64(maxActivation), maxActivation/w/c)
	}
	return nil
}

func (j *Job) checkOptimizer() *JobError {
	o := &j.Train.Optimizer
	const key = "train.optimizer."
	if err := first(
		choice(key+"kind", o.Kind, "adamw", "sgd"),
		positive(key+"lr", o.LR, true),
		whole(key+"warmup", o.Warmup, 0, maxSteps),
		choice(key+"decay", o.Decay, "none", "cosine", "linear"),
		positive(key+"weight_decay", o.WeightDecay, true),
		share(key+"beta1", o.Beta1),
		share(key+"beta2", o.Beta2),
		positive(key+"epsilon", o.Epsilon, false),
		share(key+"momentum", o.Momentum),
		positive(key+"clip", o.Clip, true),
	); err != nil {
		return err
	}
	if o.Kind == "adamw" && o.Momentum != 0 {
		return bad(key+"momentum", "is %g, but adamw has none; momentum 0 with adamw, or kind sgd, is legal", o.Momentum)
	}
	floor := o.LR
	if o.Decay != "none" {
		floor = o.LR / 10
	}
	switch {
	case o.MinLR == -1:
		o.MinLR = floor
	case !(o.MinLR >= 0 && o.MinLR <= o.LR):
		return bad(key+"min_lr", "is %g; 0 to %g, which is lr, are legal", o.MinLR, o.LR)
	case o.Decay == "none" && o.MinLR != o.LR:
		return bad(key+"min_lr", "is %g, but decay is none, so lr stays %g; decay cosine or linear, or no min_lr, is legal", o.MinLR, o.LR)
	}
	return nil
}

func (j *Job) checkLayout() *JobError {
	l := j.Layout
	if err := first(
		whole("layout.data", l.Data, 1, maxDegree),
		whole("layout.pipeline", l.Pipeline, 1, maxDegree),
		single("layout.tensor", l.Tensor),
		single("layout.chunks", l.Chunks),
		single("layout.sequence", l.Sequence),
		single("layout.expert", l.Expert),
		single("layout.zero", l.Zero),
		choice("layout.schedule", l.Schedule, schedule.Names()...),
	); err != nil {
		return err
	}
	if l.Data*l.Pipeline > maxActors {
		return bad("layout.data", "is %d with layout.pipeline %d: %d stages; at most %d are legal, so layout.data up to %d",
			l.Data, l.Pipeline, l.Data*l.Pipeline, maxActors, maxActors/l.Pipeline)
	}
	if len(l.Stages) == 0 {
		return nil
	}
	if len(l.Stages) != l.Pipeline {
		return bad("layout.stages", "has %d ranks, but layout.pipeline is %d; a list of %d numbers or layout.pipeline %d is legal", len(l.Stages), l.Pipeline, l.Pipeline, len(l.Stages))
	}
	for r, n := range l.Stages {
		if err := whole(fmt.Sprintf("layout.stages[%d]", r), n, 0, maxLayers+2); err != nil {
			return err
		}
	}
	return nil
}

// single checks a degree of which only 1 is supported.
func single(key string, n int) *JobError {
	if n != 1 {
		return bad(key, "is %d, which is not supported yet; 1 is legal", n)
	}
	return nil
}

// checkSums checks batch against micro-batches and data ranks.
func (j *Job) checkSums() *JobError {
	t, d := j.Train, j.Layout.Data
	m := ceil(t.Batch, t.MicroBatch)
	if m >= d {
		return j.checkShares(m)
	}
	// ceil(batch/micro) >= d holds for micro up to (batch-1)/(d-1) and for batch from (d-1)*micro+1.
	choices := []string{fmt.Sprintf("layout.data %d", m), fmt.Sprintf("train.batch %d", (d-1)*t.MicroBatch+1)}
	if micro := (t.Batch - 1) / (d - 1); micro >= 1 {
		choices = append(choices, fmt.Sprintf("train.micro_batch %d", micro))
	}
	return bad("layout.data", "is %d, but train.batch %d in micro-batches of train.micro_batch %d is %d micro-batches, less than one for each data rank; the nearest legal: %s",
		d, t.Batch, t.MicroBatch, m, strings.Join(choices, " or "))
}

// checkShares checks what is said of the shares of m micro-batches.
func (j *Job) checkShares(m int) *JobError {
	shares, d := j.Layout.Shares, j.Layout.Data
	if j.Supervisor.Slow.Policy == "shift" && (d == 1 || m == d) {
		return bad("supervisor.slow.policy", "is shift, but layout.data is %d and a step has %d micro-batches: none can be shifted; layout.data 2 or more with more micro-batches than that, or the policies off, warn and move, are legal", d, m)
	}
	if len(shares) == 0 {
		return nil
	}
	if len(shares) != d {
		return bad("layout.shares", "has %d numbers, but layout.data is %d; a list of %d numbers or layout.data %d is legal", len(shares), d, d, len(shares))
	}
	sum := 0
	for r, n := range shares {
		if err := whole(fmt.Sprintf("layout.shares[%d]", r), n, 1, maxMicro); err != nil {
			return err
		}
		sum += n
	}
	if sum != m {
		return bad("layout.shares", "adds up to %d, but train.batch %d in micro-batches of train.micro_batch %d is %d micro-batches; shares that add up to %d are legal, such as %s",
			sum, j.Train.Batch, j.Train.MicroBatch, m, m, SharesOf(scaled(shares, m)))
	}
	return nil
}

// shares are those of the data ranks in a step of the job, which is legal.
func (j *Job) shares() []int {
	if len(j.Layout.Shares) > 0 {
		return j.Layout.Shares
	}
	return evenShares(ceil(j.Train.Batch, j.Train.MicroBatch), j.Layout.Data)
}

func (j *Job) checkSave() *JobError {
	s := j.Save
	if err := first(whole("save.every", s.Every, 0, maxSteps), whole("save.keep", s.Keep, 0, 1<<20)); err != nil {
		return err
	}
	if s.Dir == "" && s.Every > 0 {
		return bad("save.every", "is %d, but save.dir is empty; save.every 0 or a folder in save.dir is legal", s.Every)
	}
	if s.Dir == "" && s.Keep > 0 {
		return bad("save.keep", "is %d, but save.dir is empty; save.keep 0 or a folder in save.dir is legal", s.Keep)
	}
	return nil
}

func (j *Job) checkSupervisor() *JobError {
	s := j.Supervisor
	if err := first(
		positive("supervisor.heartbeat", s.Heartbeat, false),
		whole("supervisor.suspect", s.Suspect, 1, 1<<20),
		positive("supervisor.deadline", s.Deadline, false),
		positive("supervisor.join", s.Join, false),
	); err != nil {
		return err
	}
	for _, t := range []struct {
		key     string
		seconds float64
	}{{"supervisor.heartbeat", s.Heartbeat}, {"supervisor.deadline", s.Deadline}, {"supervisor.join", s.Join}} {
		if t.seconds < 1e-3 || t.seconds > maxSeconds {
			return bad(t.key, "is %g seconds; 0.001 to %g are legal", t.seconds, maxSeconds)
		}
	}
	if limit := s.Heartbeat * float64(s.Suspect); s.Deadline < limit {
		return bad("supervisor.deadline", "is %g seconds, less than the %d heartbeats of %g seconds after which an actor is suspected; %g or more is legal", s.Deadline, s.Suspect, s.Heartbeat, limit)
	}
	return j.checkRecovery()
}

func (j *Job) checkRecovery() *JobError {
	s, b := j.Supervisor, j.Supervisor.BadBatch
	if err := first(
		whole("supervisor.restarts", s.Restarts, 0, 1<<20),
		seconds("supervisor.window", s.Window, 1e-3),
		seconds("supervisor.backoff", s.Backoff, 0),
		whole("supervisor.resumes", s.Resumes, 0, 1<<20),
		choice("supervisor.bad_batch.policy", b.Policy, "stop", "skip", "rollback"),
		positive("supervisor.bad_batch.spike", b.Spike, true),
		whole("supervisor.bad_batch.window", b.Window, 2, 1<<20),
		whole("supervisor.bad_batch.back", b.Back, 1, maxSteps),
		choice("supervisor.slow.policy", s.Slow.Policy, "off", "warn", "move", "shift"),
		whole("supervisor.slow.steps", s.Slow.Steps, 1, 1<<20),
		whole("cluster.spares", j.Cluster.Spares, 0, maxActors),
	); err != nil {
		return err
	}
	if f := s.Slow.Factor; !(f > 1 && f <= maxSeconds) {
		return bad("supervisor.slow.factor", "is %g; numbers above 1 up to %g are legal", f, float64(maxSeconds))
	}
	if b.Policy == "rollback" && (j.Save.Dir == "" || j.Save.Every == 0) {
		return bad("supervisor.bad_batch.policy", "is rollback, but save.dir is %q and save.every %d: there is no checkpoint to go back to; a folder and save.every above 0, or the policies stop and skip, are legal", j.Save.Dir, j.Save.Every)
	}
	return nil
}

// seconds checks a time.
func seconds(key string, s, least float64) *JobError {
	if !(s >= least && s <= maxSeconds) {
		return bad(key, "is %g seconds; %g to %g are legal", s, least, float64(maxSeconds))
	}
	return nil
}

func ceil(a, b int) int { return (a + b - 1) / b }
