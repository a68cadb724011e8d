package supervisor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
)

// TestShifter: scripts of measured times, with the decisions that they bring about. TROUPE_REWRITE=1 rewrites them.
//
//	setup KEY=VALUE...          a new run of a job of 8 sequences with these keys set
//	N steps CS CS...            N steps in which the stages, pipeline rank by pipeline rank, take that many hundredths of a second for a sequence
//	life ACTOR N                the actor lives its incarnation N from now on
func TestShifter(t *testing.T) { playScripts(t, "testdata/shift", playShift) }

// playShift returns the script with what came of it. What is decided after a step holds from the next one on.
func playShift(t *testing.T, text string) string {
	var out strings.Builder
	var p *plan.Plan
	var watch *SlowWatch
	var shifter *Shifter
	var shares plan.Shares
	lives := map[plan.ActorID]int{}
	step := 0
	for i, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		in, _, _ := strings.Cut(block, "\n----")
		if i > 0 {
			out.WriteString("\n")
		}
		out.WriteString(in + "\n----\n")
		for _, line := range strings.Split(in, "\n") {
			f := strings.Fields(line)
			switch {
			case f[0] == "#":
			case f[0] == "setup":
				p = shiftPlan(t, f[1:]...)
				watch = NewSlowWatch(p)
				shifter, shares, step = NewShifter(p, watch), "", 0
			case f[0] == "life":
				n, err := strconv.Atoi(f[2])
				must(t, err)
				lives[plan.ActorID(f[1])] = n
			default:
				n, err := strconv.Atoi(f[0])
				must(t, err)
				for range n {
					measured := map[plan.ActorID]Measured{}
					for i, cs := range f[2:] {
						d := i % p.Job.Layout.Data
						id := plan.StageID(i/p.Job.Layout.Data, d)
						each, err := strconv.ParseFloat(cs, 64)
						must(t, err)
						batches, err := p.Deal(shares)
						must(t, err)
						rows := float64(rowsOf(batches, p.Job.Layout.Data)[d])
						measured[id] = Measured{lives[id], time.Duration(each * rows * float64(10*time.Millisecond))}
					}
					for _, s := range watch.Step(shares, measured) {
						fmt.Fprintf(&out, "step %d: %s is slow\n", step, s.Actor)
					}
					if d := shifter.Step(shares, measured); d != nil {
						fmt.Fprintf(&out, "step %d: %s\n", step, d)
						if s, ok := d.(Shift); ok {
							shares = s.Shares
						}
					}
					step++
				}
			}
		}
	}
	return out.String()
}

// shiftPlan is that of layers of equal work, for stages that are compared by the time of a sequence.
func shiftPlan(t *testing.T, set ...string) *plan.Plan {
	job, err := plan.Parse("shift.yaml", []byte(`
name: shift
model: {layers: 4, width: 8, heads: 2, context: 8}
data: {text: none}
train: {steps: 100, batch: 8, micro_batch: 1}
layout: {data: 2}
supervisor: {slow: {policy: shift, factor: 1.5, steps: 3}}
`))
	must(t, err)
	for _, s := range set {
		must(t, job.Set(s))
	}
	must(t, job.Validate())
	m, err := model.Build("gpt", model.Config{Layers: 4, Width: 8, Heads: 2, Context: 8, Vocab: 8})
	must(t, err)
	p, err := plan.New(job, m, plan.Options{})
	must(t, err)
	return p
}

// TestTrainerShares: the trainer opens training steps, and nothing else, by the shares that it was told last; a new life
// of it opens the open step by those that the step has, and the next by those that it was told.
func TestTrainerShares(t *testing.T) {
	p := shiftPlan(t, "layout.data=2")
	shares := func(effects []machine.Effect) (all []string) {
		for _, e := range effects {
			if s, ok := e.(machine.Send); ok && s.Message.Name.Value.Kind == plan.Start && s.Message.Name.To == plan.StageID(0, 1) {
				all = append(all, fmt.Sprintf("%s by %q", s.Message.Name.Round, s.Message.Name.Round.Shares))
			}
		}
		return all
	}
	next := func(tr *Trainer, after plan.Round) string {
		r, ok := tr.next(after)
		return fmt.Sprintf("%s by %q, %v", r, r.Shares, ok)
	}
	tr := NewTrainer(p, Rounds{Until: 4, Evaluates: true})
	tr.Handle(machine.Reshare{Shares: "5,3"})
	if got := shares(tr.Handle(machine.Begin{})); !slices.Equal(got, []string{`init step 0 by ""`}) {
		t.Error(got)
	}
	for _, c := range []struct {
		tell  plan.Shares
		after plan.Round
		want  string
	}{
		{"5,3", plan.Round{Phase: plan.InitPhase}, `evaluate step 0 by "", true`},
		{"5,3", plan.Round{Phase: plan.EvaluatePhase}, `train step 0 by "5,3", true`},
		{"2,6", plan.Round{Phase: plan.TrainPhase, Shares: "5,3"}, `train step 1 by "2,6", true`},
		{"", plan.Round{Step: 1, Phase: plan.TrainPhase, Shares: "2,6"}, `train step 2 by "", true`},
	} {
		tr.Handle(machine.Reshare{Shares: c.tell})
		if got := next(tr, c.after); got != c.want {
			t.Errorf("after %s: %s, want %s", c.after, got, c.want)
		}
	}
	open := plan.Round{Step: 2, Phase: plan.TrainPhase, Shares: "1,7"}
	again := NewTrainer(p, Rounds{Until: 4}, Reopen(1, open, nil), WithShares("6,2"))
	if got := shares(again.Handle(machine.Begin{})); !slices.Equal(got, []string{`train step 2 by "1,7"`}) {
		t.Error(got)
	}
	if got := next(again, open); got != `train step 3 by "6,2", true` {
		t.Error(got)
	}
}

// TestShiftInARun: while a stage of one replica is slow, micro-batches go to the other one, and come back when it is
// fast again. Every change is a decision with its reason, in the result and in the journal, and no bit of the weights changes.
func TestShiftInARun(t *testing.T) {
	dir := t.TempDir()
	set := []string{"train.steps=160", "model.width=64", "model.context=64", "train.evaluate.batch=0", "train.evaluate.every=0", "layout.pipeline=1", "train.batch=16"}
	want, _, err := runJob(t, testRunJob(t, set...), "")
	must(t, err)
	job := testRunJob(t, append(set, "supervisor.slow.policy=shift", "supervisor.slow.steps=3", "supervisor.slow.factor=4", "save.dir="+dir)...)
	r, told, err := runJob(t, job, "slow stage.p0.d0 at forward of train step 3 factor 12\nslow stage.p0.d0 at forward of train step 25 factor 1")
	must(t, err)
	said := strings.Join(told, "\n")
	if r.WeightsSHA256 != want.WeightsSHA256 || r.Restarts != 0 {
		t.Errorf("weights %s, want %s; %d restarts\n%s", r.WeightsSHA256, want.WeightsSHA256, r.Restarts, said)
	}
	// On a busy machine others are slow now and then, too, and there are more shifts than these.
	away := slices.IndexFunc(r.Shifts, func(s ShiftDone) bool { return s.Shares[0] < s.Shares[1] })
	back := slices.IndexFunc(r.Shifts[max(away, 0):], func(s ShiftDone) bool { return slices.Equal(s.Shares, []int{4, 4}) })
	if away < 0 || back < 0 {
		t.Errorf("shifts %+v; want one away from data rank 0 and later one back\n%s", r.Shifts, said)
	}
	for _, s := range r.Shifts {
		if s.Reason == "" || !strings.Contains(said, "decision: shift micro-batches of the data ranks from ") || !strings.Contains(said, s.Reason) {
			t.Errorf("%+v\n%s", s, said)
		}
	}
	l, err := ReadJournal(dir)
	must(t, err)
	for _, s := range l.Steps {
		at := plan.Shares("")
		for _, x := range r.Shifts {
			if x.Step <= s.Step && !slices.Equal(x.Shares, []int{4, 4}) {
				at = plan.SharesOf(x.Shares)
			} else if x.Step <= s.Step {
				at = ""
			}
		}
		if s.Shares != at {
			t.Errorf("step %d is journalled by %q, want %q", s.Step, s.Shares, at)
		}
	}
}

// TestFailuresByOtherShares: whoever fails in a step by uneven shares, or in that at which they change, the weights are
// those of the undisturbed run, and nobody else is restarted.
func TestFailuresByOtherShares(t *testing.T) {
	want, err := undisturbed()
	must(t, err)
	const always = "shift 3,1 at trainer of init step 0\nshift 1,3 at trainer feed of train step 2\n"
	for _, c := range []struct{ fault, who string }{
		{"panic stage.p0.d0 at forward micro-batch 1 of train step 1", "stage.p0.d0"},
		{"panic stage.p1.d1 at backward-weight micro-batch 3 of train step 3", "stage.p1.d1"},
		{"kill shard.p0.d1 at receive value gradient number 3 of train step 3", "shard.p0.d1"},
		{"panic shard.p1.d0 at update of train step 4", "shard.p1.d0"},
		{"panic trainer at decide of train step 1", "trainer"},
		{"panic trainer at finish of train step 2", "trainer"},
		{"kill trainer at receive value report number 2 of train step 3", "trainer"},
		{"panic trainer at feed of train step 4", "trainer"},
	} {
		t.Run(strings.ReplaceAll(c.fault, " ", "_"), func(t *testing.T) {
			r, told, err := runJob(t, testRunJob(t), always+c.fault)
			must(t, err)
			said := strings.Join(told, "\n")
			if r.WeightsSHA256 != want {
				t.Errorf("weights %s, want %s\n%s", r.WeightsSHA256, want, said)
			}
			for _, a := range r.Actors {
				if n := map[bool]int{true: 1}[string(a.ID) == c.who]; a.Restarts != n {
					t.Errorf("%s was restarted %d times, want %d\n%s", a.ID, a.Restarts, n, said)
				}
			}
			// Both are decided, one after the other. When they take effect depends on the machine: on a busy one the second may
			// replace the first, or come behind the end.
			first, second := strings.Index(said, "from 2,2 to 3,1"), strings.Index(said, "from 3,1 to 1,3")
			if first < 0 || second < first || strings.Count(said, "decision: shift") != 2 || len(r.Shifts) == 0 {
				t.Errorf("shifts %+v\n%s", r.Shifts, said)
			}
		})
	}
}
