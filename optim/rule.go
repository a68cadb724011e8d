package optim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// Rule is a way to update weights, element by element.
type Rule struct {
	// Moments is the number of vectors that it keeps for each weight.
	Moments int
	// Step writes s.Next and s.NextMoments.
	Step func(k device.Kernels, s Step)
}

// Step is one update of a run of parameters that decay alike. All slices have the same length.
type Step struct {
	Next, Weights, Gradient device.Slice
	// NextMoments may be Moments.
	Moments, NextMoments []device.Slice
	Rate, Scale, Decay   float64 // Scale is the factor that clips the gradient
	Number               int     // counts from 1
	Optimizer            plan.Optimizer
}

// Rules has every rule that a job file can name.
var Rules = map[string]Rule{
	"adamw": {Moments: 2, Step: adamW},
	"sgd":   {Moments: 1, Step: sgd},
}

// RuleOf returns a rule of Rules.
func RuleOf(kind string) (Rule, error) {
	r, ok := Rules[kind]
	if !ok {
		return r, fmt.Errorf("train.optimizer.kind: %q is not known; legal: %s", kind, strings.Join(slices.Sorted(maps.Keys(Rules)), ", "))
	}
	return r, nil
}

func adamW(k device.Kernels, s Step) {
	k.AdamW(s.Next, s.NextMoments[0], s.NextMoments[1], s.Weights, s.Moments[0], s.Moments[1], s.Gradient, device.AdamW{
		LR: s.Rate, Beta1: s.Optimizer.Beta1, Beta2: s.Optimizer.Beta2, Epsilon: s.Optimizer.Epsilon,
		Decay: s.Decay, Step: s.Number, GradScale: s.Scale,
	})
}

func sgd(k device.Kernels, s Step) {
	k.SGD(s.Next, s.NextMoments[0], s.Weights, s.Moments[0], s.Gradient, device.SGD{
		LR: s.Rate, Momentum: s.Optimizer.Momentum, Decay: s.Decay, GradScale: s.Scale,
	})
}
