package machine

import "github.com/troupe-train/troupe/device"

// Perform runs a launched operation on the stream, and then ends the resident values that it
// frees. Both shells run operations this way.
func (l Launch) Perform(k device.Kernels, x Executor) ([]Payload, error) {
	out, err := x.Run(k, l.Round, l.Op, l.In)
	if err != nil {
		return nil, err
	}
	for _, v := range l.Op.Frees {
		if Resident(v) {
			x.Free(l.Round, v)
		}
	}
	return out, nil
}
