package model

import "github.com/troupe-train/troupe/device"

// What the halves of a block share: a layer norm at the start of a branch, dropout and the addition
// to the residual stream at its end.

// normSaved are the statistics of a layer norm. Its output is made again where it is needed.
var normSaved = []Port{{Name: "mean", PerToken: 1, Float: true}, {Name: "rstd", PerToken: 1, Float: true}}

// normSums is the scratch memory for the statistics that normAgain makes a second time.
func normSums(rows, context int) int { return 2 * rows * context }

// normGrad is the gradient of the output of the layer norm, which the gradients of gain and bias need.
func (c GPTConfig) normGrad() Port { return Port{Name: "norm gradient", PerToken: c.Width} }

// normAgain makes the output of the layer norm of c.In[0] by c.Params[0] and c.Params[1] again, the same
// bits as in Forward. It is [n, width] and lies in w.
func normAgain(k device.Kernels, c *Call, w *scratch, n, width int) device.Slice {
	y := w.take(n * width)
	k.LayerNorm(y, c.Sums.Sub(0, n), c.Sums.Sub(n, n), c.In[0], c.Params[0], c.Params[1], n, width)
	return y
}

// branchMask is the mask at the end of a branch.
func (c GPTConfig) branchMask(call *Call, site uint64) device.Dropout {
	return call.dropout(c.Dropout, site, call.Context*c.Width)
}

// branchGrad is the stash for the gradient of a branch behind its mask. Without dropout that is the
// gradient of the residual stream itself, which is kept anyway.
func (c GPTConfig) branchGrad() []Port {
	if c.Dropout == 0 {
		return nil
	}
	return []Port{{Name: "branch gradient", PerToken: c.Width}}
}

// maskBranch returns the gradient of the branch, and stashes it where there is dropout.
func (c GPTConfig) maskBranch(k device.Kernels, call *Call, site uint64) device.Slice {
	dy := c.maskedBranch(call)
	if c.Dropout > 0 {
		k.Dropout(dy, device.Slice{}, call.DOut[0], c.branchMask(call, site))
	}
	return dy
}

// maskedBranch is what maskBranch returned: the last of the stash, or the gradient of the residual stream.
func (c GPTConfig) maskedBranch(call *Call) device.Slice {
	if c.Dropout == 0 {
		return call.DOut[0]
	}
	return call.Stash[len(call.Stash)-1]
}

func (c GPTConfig) dropoutFLOPs() float64 {
	if c.Dropout == 0 {
		return 0
	}
	return dropoutFLOPs
}
