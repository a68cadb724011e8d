package machine

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// TensorOf is the payload of a value, which must be a tensor of n elements of type t.
func TensorOf(v plan.Value, p Payload, t device.DType, n int) (device.Slice, error) {
	x, ok := p.(Tensor)
	if !ok {
		return device.Slice{}, fmt.Errorf("%s is a %T and not a tensor", v, p)
	}
	if x.Type != t || x.Len != n {
		return device.Slice{}, fmt.Errorf("%s has %d elements of %s, must have %d of %s", v, x.Len, x.Type, n, t)
	}
	return x.Slice, nil
}
