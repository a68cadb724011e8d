package supervisor

import (
	"fmt"
	"math"

	"github.com/troupe-train/troupe/plan"
)

// BadBatch is the error of a step that must not change the weights.
type BadBatch struct {
	Step   int64
	Reason string
	// Back, if not 0, asks for the weights from before that many steps, and for the batches since then to be skipped.
	Back int64
}

func (b *BadBatch) Error() string {
	return fmt.Sprintf("the batch of train step %d is bad: %s", b.Step, b.Reason)
}

// Judge decides, once for each step, whether it makes an update. What it decides is taken down before anybody
// hears of it, so a trainer that begins a new life, or a run that resumes, decides the same.
type Judge struct {
	policy plan.BadBatch
	// losses are those of the newest committed steps that made an update, at most policy.Window.
	losses []float64
	next   int64 // the first step that is not among those that have committed
	skips  map[int64]string
	// record makes a decision to skip durable.
	record func(step int64, reason string) error
}

// NewJudge returns a judge with a job's policy. l is the ledger of what the run has committed so far, or nil;
// record takes down decisions, and may be nil.
func NewJudge(policy plan.BadBatch, l *Ledger, record func(step int64, reason string) error) *Judge {
	j := &Judge{policy: policy, skips: map[int64]string{}, record: record}
	if l == nil {
		return j
	}
	for step, reason := range l.Skips {
		j.skips[step] = reason
	}
	for _, s := range l.Steps {
		j.Committed(s.Step, float64(s.Loss), s.Skipped != "")
	}
	return j
}

// rests says whether what a policy decides rests on more than the weights and the batch at hand: on losses and decisions before
// them, which only the journal has.
func rests(p plan.BadBatch) bool {
	return p.Policy == "rollback" || p.Policy == "skip" && p.Spike > 0
}

// why says what a policy needs the journal for, and without is what to set to do without it.
func why(p plan.BadBatch) string {
	if p.Policy == "rollback" {
		return "with supervisor.bad_batch.policy=rollback it says which steps are to be skipped, and the run would have other weights without that"
	}
	return fmt.Sprintf("with supervisor.bad_batch.policy=skip and spike=%g it has the losses that a spike is measured by, and the run would have other weights without them", p.Spike)
}

func without(p plan.BadBatch) string {
	if p.Policy == "rollback" {
		return "supervisor.bad_batch.policy=stop"
	}
	return "supervisor.bad_batch.spike=0"
}

// lacks says what the ledger of a run that goes on from so many steps lacks for the policy to decide as it would have, or "".
func (l *Ledger) lacks(steps int64, p plan.BadBatch) string {
	switch {
	case steps == 0 || !rests(p):
		return ""
	case l.Runs == 0:
		return "it is missing, or nothing is in it"
	case p.Spike == 0 || l.Began == 0:
		return ""
	}
	updates := 0
	for _, s := range l.Steps[:max(0, min(steps-l.Began, int64(len(l.Steps))))] {
		if s.Skipped == "" {
			updates++
		}
	}
	if updates < p.Window {
		return fmt.Sprintf("it begins with train step %d, and has %d losses of steps before train step %d where supervisor.bad_batch.window is %d", l.Began, updates, steps, p.Window)
	}
	return ""
}

// Rule says why a step is to commit without an update, or "" for one that makes it. broken is what is not
// finite in it, if anything. The error is a *BadBatch when the run is to stop or to go back.
func (j *Judge) Rule(step int64, loss float64, broken string) (skip string, err error) {
	if reason, ok := j.skips[step]; ok {
		return reason, nil
	}
	reason := broken
	if reason == "" {
		reason = j.spike(loss)
	}
	if reason == "" {
		return "", nil
	}
	bad := &BadBatch{Step: step, Reason: reason}
	if n := j.before(step); n >= j.policy.Window && j.policy.Policy != "stop" {
		bad.Reason += fmt.Sprintf("; the %d steps before it made no update either, and bad_batch.window is %d: it is not the batches that are bad", n, j.policy.Window)
		return "", bad
	}
	switch j.policy.Policy {
	case "skip":
		return reason, j.skip(step, reason)
	case "rollback":
		bad.Back = j.policy.Back
	}
	return "", bad
}

// before is how many steps right before a bad one make no update. Those that a rollback undoes are none of them, unless they
// made none anyway, and do not come between: a rollback after the other ends, too.
func (j *Judge) before(step int64) (n int) {
	from := step
	if j.policy.Policy == "rollback" {
		from = max(step-j.policy.Back, 0)
	}
	for s := from; s < step; s++ {
		if j.skips[s] != "" {
			n++
		}
	}
	for ; j.skips[from-1] != ""; from-- {
		n++
	}
	return n
}

func (j *Judge) skip(step int64, reason string) error {
	if j.record != nil {
		if err := j.record(step, reason); err != nil {
			return err
		}
	}
	j.skips[step] = reason
	return nil
}

// Undo are the decisions to skip that go with a rollback: the bad step and the steps before it that are undone. It returns
// the step of the weights to go back to as well, at most.
func (j *Judge) Undo(b *BadBatch) (int64, []SkipEntry) {
	from := max(b.Step-b.Back, 0)
	var skip []SkipEntry
	for s := from; s <= b.Step; s++ {
		if j.skips[s] != "" {
			continue
		}
		reason := b.Reason
		if s < b.Step {
			reason = fmt.Sprintf("it comes %d steps before a bad batch: %s", b.Step-s, b.Reason)
		}
		skip = append(skip, SkipEntry{s, reason})
	}
	return from, skip
}

// Committed takes in the loss of a step that has committed. To hear of one twice does no harm.
func (j *Judge) Committed(step int64, loss float64, skipped bool) {
	again := step < j.next
	j.next = max(j.next, step+1)
	if skipped || again {
		return
	}
	j.losses = append(j.losses, loss)
	if n := len(j.losses) - j.policy.Window; n > 0 {
		j.losses = append(j.losses[:0], j.losses[n:]...)
	}
}

// leastSpread is the least standard deviation, as a share of the mean, that a spike is measured by: losses that hardly
// change make no spike of a small change.
const leastSpread = 1e-3

// spike describes a loss that is too far above the mean of the window. Before the window is full nothing is a spike.
func (j *Judge) spike(loss float64) string {
	n := len(j.losses)
	if j.policy.Spike == 0 || n < j.policy.Window {
		return ""
	}
	mean, square := 0.0, 0.0
	for _, l := range j.losses {
		mean += l / float64(n)
	}
	for _, l := range j.losses {
		square += (l - mean) * (l - mean) / float64(n)
	}
	spread := max(math.Sqrt(square), leastSpread*math.Abs(mean))
	if z := (loss - mean) / spread; z > j.policy.Spike {
		return fmt.Sprintf("its loss %.4f is %.1f standard deviations above the mean %.4f of the last %d steps; up to %g are legal", loss, z, mean, n, j.policy.Spike)
	}
	return ""
}
