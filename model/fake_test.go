package model_test

import (
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
)

// fake is a segment that computes nothing.
type fake struct{ spec model.Spec }

func (f fake) Spec() model.Spec                           { return f.spec }
func (f fake) Forward(k device.Kernels, c *model.Call)    {}
func (f fake) BackwardInput(device.Kernels, *model.Call)  {}
func (f fake) BackwardWeight(device.Kernels, *model.Call) {}
func (f fake) Cost(rows, context int) model.Cost          { return model.Cost{Forward: float64(rows)} }
func segment(in, out []model.Port, p ...model.Param) fake {
	return fake{model.Spec{Name: "fake", In: in, Out: out, Params: p}}
}
func layer(name string, s ...model.Segment) model.Layer { return model.Layer{Name: name, Segments: s} }
func ports(p ...model.Port) []model.Port                { return p }
func param(name string, shape ...int) model.Param       { return model.Param{Name: name, Shape: shape} }

var (
	x    = model.Port{Name: "x", PerToken: 4}
	loss = model.Port{Name: "loss", PerToken: 1, Float: true}
)
