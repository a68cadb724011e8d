package optim_test

import (
	"math"
	"testing"

	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
)

func TestLearningRate(t *testing.T) {
	train := func(decay string) plan.Train {
		return plan.Train{Steps: 110, Optimizer: plan.Optimizer{LR: 1, MinLR: 0.2, Warmup: 10, Decay: decay}}
	}
	for _, c := range []struct {
		decay string
		step  int64
		want  float64
	}{
		{"cosine", 0, 0.1}, {"cosine", 4, 0.5}, {"cosine", 9, 1}, {"cosine", 10, 1},
		{"cosine", 60, 0.6}, {"cosine", 35, 0.2 + 0.8*(1+math.Sqrt2/2)/2}, {"cosine", 110, 0.2}, {"cosine", 1000, 0.2},
		{"linear", 3, 0.4}, {"linear", 10, 1}, {"linear", 35, 0.8}, {"linear", 60, 0.6}, {"linear", 109, 0.208}, {"linear", 111, 0.2},
		{"none", 0, 0.1}, {"none", 10, 1}, {"none", 109, 1}, {"none", 500, 1},
	} {
		if got := optim.LearningRate(train(c.decay), c.step); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s, step %d: %v, want %v", c.decay, c.step, got, c.want)
		}
	}
	// No warm-up, and a warm-up that is as long as the run.
	none := train("linear")
	none.Optimizer.Warmup = 0
	if got := optim.LearningRate(none, 0); got != 1 {
		t.Errorf("without warm-up the first step has %v", got)
	}
	all := train("cosine")
	all.Optimizer.Warmup = all.Steps
	if got := optim.LearningRate(all, all.Steps-1); got != 1 {
		t.Errorf("at the end of a warm-up over the whole run: %v", got)
	}
}
