package supervisor

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/plan"
)

// TestSpike: a loss far above the window is a spike; before the window is full, below it, or with spikes off nothing is.
func TestSpike(t *testing.T) {
	for _, c := range []struct {
		name   string
		losses []float64
		loss   float64
		spike  float64
		want   bool
	}{
		{"far above", []float64{3, 2.9, 3.1, 3}, 4, 5, true},
		{"not far enough", []float64{3, 2.9, 3.1, 3}, 3.3, 5, false},
		{"far below", []float64{3, 2.9, 3.1, 3}, 1, 5, false},
		{"off", []float64{3, 2.9, 3.1, 3}, 100, 0, false},
		{"window not full", []float64{3, 2.9, 3.1}, 100, 5, false},
		{"constant losses, small change", []float64{3, 3, 3, 3}, 3.01, 5, false},
		{"constant losses, change beyond a share of the mean", []float64{3, 3, 3, 3}, 3.02, 5, true},
		{"only the newest count", []float64{90, 3, 2.9, 3.1, 3}, 4, 5, true},
	} {
		j := NewJudge(plan.BadBatch{Policy: "skip", Spike: c.spike, Window: 4}, nil, nil)
		for i, l := range c.losses {
			j.Committed(int64(i), l, false)
			j.Committed(int64(i), 1000, false) // again
		}
		j.Committed(int64(len(c.losses)), math.NaN(), true) // skipped steps do not count
		got, err := j.Rule(9, c.loss, "")
		if err != nil || (got != "") != c.want {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

// TestPolicies: what each policy makes of a bad batch, and that a decision is taken once.
func TestPolicies(t *testing.T) {
	var recorded []int64
	record := func(step int64, _ string) error { recorded = append(recorded, step); return nil }
	bad := new(BadBatch)

	j := NewJudge(plan.BadBatch{Policy: "stop", Window: 4}, nil, record)
	if _, err := j.Rule(5, math.NaN(), "loss micro-batch 2 is NaN"); !errors.As(err, &bad) || bad.Back != 0 || bad.Step != 5 {
		t.Errorf("stop: %v", err)
	}

	j = NewJudge(plan.BadBatch{Policy: "skip", Window: 4}, nil, record)
	for range 2 {
		if skip, err := j.Rule(5, math.NaN(), "NaN"); skip != "NaN" || err != nil {
			t.Errorf("skip: %q, %v", skip, err)
		}
	}
	if len(recorded) != 1 {
		t.Errorf("the decision was taken down %d times", len(recorded))
	}
	failing := NewJudge(plan.BadBatch{Policy: "skip", Window: 4}, nil, func(int64, string) error { return errors.New("disk full") })
	if _, err := failing.Rule(5, math.NaN(), "NaN"); err == nil {
		t.Error("a decision that is not durable was taken")
	}

	recorded = nil
	j = NewJudge(plan.BadBatch{Policy: "rollback", Window: 4, Back: 2}, nil, record)
	if _, err := j.Rule(5, math.NaN(), "NaN"); !errors.As(err, &bad) || bad.Back != 2 {
		t.Fatalf("rollback: %v", err)
	}
	from, skip := j.Undo(bad)
	if from != 3 || len(skip) != 3 || len(recorded) != 0 {
		t.Errorf("back to %d, skipping %v", from, skip)
	}
	l := &Ledger{Skips: map[int64]string{}}
	for _, s := range skip {
		l.Skips[s.Step] = s.Reason
	}
	j = NewJudge(j.policy, l, nil)
	for s := int64(2); s < 7; s++ {
		if skip, err := j.Rule(s, 1, ""); err != nil || (skip != "") != (s >= 3 && s <= 5) {
			t.Errorf("step %d after the rollback: %q, %v", s, skip, err)
		}
	}
}

// TestJudgeResumes: a judge made from the ledger decides what the one that wrote it would have.
func TestJudgeResumes(t *testing.T) {
	policy := plan.BadBatch{Policy: "skip", Window: 6, Spike: 9}
	l := &Ledger{Skips: map[int64]string{}}
	before := NewJudge(policy, nil, func(s int64, reason string) error { l.Skips[s] = reason; return nil })
	loss := func(s int64) float64 {
		if s%7 == 6 {
			return 9
		}
		return 3 + 0.1*float64(s%2)
	}
	for s := range int64(40) {
		resumed := NewJudge(policy, l, nil)
		want, err := before.Rule(s, loss(s), "")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := resumed.Rule(s, loss(s), ""); got != want || err != nil {
			t.Fatalf("step %d: %q, %v; want %q", s, got, err, want)
		}
		if (want != "") != (s%7 == 6) {
			t.Fatalf("step %d: %q", s, want)
		}
		before.Committed(s, loss(s), want != "")
		l.Steps = append(l.Steps, StepEntry{Step: s, Loss: Number(loss(s)), Skipped: want})
	}
	if !strings.Contains(l.Skips[6], "standard deviations") {
		t.Errorf("%q", l.Skips[6])
	}
}

// TestTooManyInARow: batches are not bad for ever; when as many steps as the window has made no update, something else is
// wrong, and the run stops. It makes no difference whether they are of this run or of the one that it resumes.
func TestTooManyInARow(t *testing.T) {
	for _, policy := range []string{"skip", "rollback"} {
		ledger := &Ledger{Skips: map[int64]string{4: "NaN", 5: "NaN", 6: "NaN"}}
		j := NewJudge(plan.BadBatch{Policy: policy, Window: 3, Back: 2}, ledger, nil)
		_, err := j.Rule(7, 1, "the gradient is not finite")
		if bad := (*BadBatch)(nil); !errors.As(err, &bad) || bad.Back != 0 || !strings.Contains(err.Error(), "the 3 steps before it") {
			t.Errorf("%s: error %v", policy, err)
		}
		if _, err := j.Rule(9, 1, "the gradient is not finite"); policy == "skip" && err != nil {
			t.Errorf("a bad batch behind a good one: %v", err)
		}
	}
	// Weights that each update destroys: the step after it is bad, and both are skipped, again and again.
	for _, back := range []int64{1, 2, 5, 40} {
		j := NewJudge(plan.BadBatch{Policy: "rollback", Window: 32, Back: back}, nil, nil)
		rollbacks, step := 0, int64(0)
		for ; step < 1000; step++ {
			reason := ""
			if step > 0 && j.skips[step-1] == "" {
				reason = "the loss is not finite"
			}
			_, err := j.Rule(step, 1, reason)
			bad := (*BadBatch)(nil)
			if !errors.As(err, &bad) {
				continue
			}
			if bad.Back == 0 {
				break
			}
			rollbacks++
			_, skip := j.Undo(bad)
			for _, s := range skip {
				j.skips[s.Step] = s.Reason
			}
		}
		if step == 1000 || rollbacks == 0 {
			t.Errorf("%d steps back at a time: at step %d after %d rollbacks it still goes on", back, step, rollbacks)
		}
	}
}
