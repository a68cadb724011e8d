package check_test

import (
	"strings"
	"testing"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/model/check"
)

const in, out = 3, 2

// affine is y = x w^T + b with a defect, if any.
type affine struct{ defect string }

func (a affine) Spec() model.Spec {
	return model.Spec{
		Name:   "affine",
		Params: []model.Param{{Name: "w", Shape: []int{out, in}}, {Name: "b", Shape: []int{out}}},
		In:     []model.Port{{Name: "x", PerToken: in}},
		Out:    []model.Port{{Name: "y", PerToken: out}},
		Work:   func(rows, context int) int { return rows * context * out },
	}
}

func (a affine) Forward(k device.Kernels, c *model.Call) {
	n := c.Rows * c.Context
	k.MatMul(c.Out[0], c.In[0], c.Params[0], device.MatMul{M: n, N: out, K: in, TransB: true, Bias: c.Params[1]})
	switch a.defect {
	case "reads scratch":
		k.Add(c.Out[0], c.Out[0], c.Work)
	case "writes input":
		k.Fill(c.In[0], 0)
	case "uses what is not there":
		k.Fill(c.Grads[0], 0)
	}
}

func (a affine) BackwardInput(k device.Kernels, c *model.Call) {
	n := c.Rows * c.Context
	k.MatMul(c.DIn[0], c.DOut[0], c.Params[0], device.MatMul{M: n, N: in, K: out})
	if a.defect == "input gradient" {
		k.Add(c.DIn[0], c.DIn[0], c.In[0])
	}
}

func (a affine) BackwardWeight(k device.Kernels, c *model.Call) {
	n := c.Rows * c.Context
	k.MatMul(c.Grads[0], c.DOut[0], c.In[0], device.MatMul{M: out, N: in, K: n, TransA: true, Accumulate: a.defect == "adds to gradients"})
	switch a.defect {
	case "no bias gradient":
	case "bias gradient":
		k.SumRows(c.Grads[1], c.Out[0], n, out)
	default:
		k.SumRows(c.Grads[1], c.DOut[0], n, out)
	}
}

func (a affine) Cost(rows, context int) model.Cost { return model.Cost{} }

func TestSegment(t *testing.T) {
	for defect, want := range map[string]string{
		"":                       "",
		"reads scratch":          "the gradient of port x, element 0, is",
		"writes input":           "segment affine, forward: writes what it may only read",
		"uses what is not there": "segment affine, forward: panic: runtime error: index out of range",
		"input gradient":         "the gradient of port x, element 0, is",
		"adds to gradients":      "the gradient of parameter w, element 0, is NaN",
		"no bias gradient":       "the gradient of parameter b, element 0, is NaN",
		"bias gradient":          "the gradient of parameter b, element 0, is",
	} {
		err := check.Segment(affine{defect}, check.Options{Rows: 2, Context: 3})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("defect %q: error %v, want %q", defect, err, want)
		}
	}
}
