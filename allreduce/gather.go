package allreduce

import (
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// Gather copies parts to their places in dst: parts[i] becomes the elements pieces[i].
func Gather(k device.Kernels, dst device.Slice, pieces []plan.Range, parts []device.Slice) {
	for i, r := range pieces {
		k.Copy(dst.Sub(r.Lo, r.Len()), parts[i])
	}
}
