package main

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
)

// adapter is a narrow MLP added to the residual stream (Houlsby et al. 2019, section 2.1):
// y = x + up(gelu(down(x))), x and y [rows*context, width], down(x) [rows*context, inner].
type adapter struct {
	name  string
	port  model.Port // what runs between the layers: its PerToken is the width
	inner int
}

func (a adapter) Spec() model.Spec {
	width := a.port.PerToken
	weight := func(name string, std float64, shape ...int) model.Param {
		return model.Param{Name: a.name + name, Shape: shape, Init: model.Init{Kind: model.Normal, Std: std}, Decay: len(shape) == 2}
	}
	bias := func(name string, n int) model.Param { return model.Param{Name: a.name + name, Shape: []int{n}} }
	return model.Spec{
		Name: "adapter",
		// up starts near zero, so that the layer starts as the identity.
		Params: []model.Param{
			weight(".down.weight", 0.02, a.inner, width), bias(".down.bias", a.inner),
			weight(".up.weight", 0.001, width, a.inner), bias(".up.bias", width),
		},
		In:    []model.Port{a.port},
		Out:   []model.Port{a.port},
		Saved: []model.Port{{Name: "hidden", PerToken: a.inner}, {Name: "gelu", PerToken: a.inner}},
		Stash: []model.Port{{Name: "hidden gradient", PerToken: a.inner}},
	}
}

func (a adapter) Forward(k device.Kernels, c *model.Call) {
	x, y, h, g := c.In[0], c.Out[0], c.Saved[0], c.Saved[1]
	n, width := c.Rows*c.Context, a.port.PerToken
	k.MatMul(h, x, c.Params[0], device.MatMul{M: n, N: a.inner, K: width, TransB: true, Bias: c.Params[1], GELU: g})
	k.MatMul(y, g, c.Params[2], device.MatMul{M: n, N: width, K: a.inner, TransB: true, Bias: c.Params[3]})
	k.Add(y, y, x)
}

func (a adapter) BackwardInput(k device.Kernels, c *model.Call) {
	dx, dy, dh := c.DIn[0], c.DOut[0], c.Stash[0]
	n, width := c.Rows*c.Context, a.port.PerToken
	k.MatMul(dh, dy, c.Params[2], device.MatMul{M: n, N: a.inner, K: width})
	k.GELUBackward(dh, dh, c.Saved[0])
	k.MatMul(dx, dh, c.Params[0], device.MatMul{M: n, N: width, K: a.inner})
	k.Add(dx, dx, dy)
}

func (a adapter) BackwardWeight(k device.Kernels, c *model.Call) {
	x, g, dy, dh := c.In[0], c.Saved[1], c.DOut[0], c.Stash[0]
	n, width := c.Rows*c.Context, a.port.PerToken
	k.MatMul(c.Grads[0], dh, x, device.MatMul{M: a.inner, N: width, K: n, TransA: true})
	k.SumRows(c.Grads[1], dh, n, a.inner)
	k.MatMul(c.Grads[2], dy, g, device.MatMul{M: width, N: a.inner, K: n, TransA: true})
	k.SumRows(c.Grads[3], dy, n, width)
}

// Cost counts the products: two in each phase, of rows*context x width x inner.
func (a adapter) Cost(rows, context int) model.Cost {
	n := float64(rows * context)
	product := 2 * n * float64(a.port.PerToken) * float64(a.inner)
	return model.Cost{Forward: 2 * product, BackwardInput: 2 * product, BackwardWeight: 2 * product,
		Bytes: 4 * n * float64(6*a.port.PerToken+8*a.inner)}
}

// withAdapters returns m with an adapter after each layer but the first and the last.
func withAdapters(m *model.Model, inner int) (*model.Model, error) {
	var layers []model.Layer
	for i, l := range m.Layers {
		layers = append(layers, l)
		if i > 0 && i < len(m.Layers)-1 {
			name := fmt.Sprintf("adapter%d", i-1)
			layers = append(layers, model.Layer{Name: name, Segments: []model.Segment{adapter{name, m.Out(i)[0], inner}}})
		}
	}
	return model.New(m.Kind+" with adapters", m.Context, m.Vocab, layers)
}
