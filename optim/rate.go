package optim

import (
	"math"

	"github.com/troupe-train/troupe/plan"
)

// LearningRate is the rate of the step that makes weights step+1 of weights step. Over the first Warmup
// steps it rises in equal parts to LR; from there to the last step it stays (decay "none"), or falls
// from LR to MinLR on a straight line ("linear") or on half a cosine ("cosine", Loshchilov and
// Hutter 2017, equation 5, without restarts). It stays at MinLR after the last step.
func LearningRate(t plan.Train, step int64) float64 {
	o := t.Optimizer
	if step < o.Warmup {
		return o.LR * float64(step+1) / float64(o.Warmup)
	}
	// The part of the decay that lies behind: 0 at the first step after the warm-up.
	x := 1.0
	if step < t.Steps {
		x = float64(step-o.Warmup) / float64(t.Steps-o.Warmup)
	}
	switch o.Decay {
	case "cosine":
		return o.MinLR + (o.LR-o.MinLR)*(1+math.Cos(math.Pi*x))/2
	case "linear":
		return o.LR + (o.MinLR-o.LR)*x
	}
	return o.LR
}
