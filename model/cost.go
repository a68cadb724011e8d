package model

// Floating-point operations of an element of the kernels that are not matrix products, each
// function of the mathematical library counted as the handful of operations that it takes. They
// matter only where the products are small.
const (
	normFLOPs               = 8
	normBackwardInputFLOPs  = 12
	normBackwardWeightFLOPs = 6
	rmsFLOPs                = 4
	rmsBackwardInputFLOPs   = 9
	rmsBackwardWeightFLOPs  = 4
	swigluFLOPs             = 12
	swigluBackwardFLOPs     = 20
	turnFLOPs               = 3
	geluFLOPs               = 16
	geluBackwardFLOPs       = 24
	dropoutFLOPs            = 8
	softmaxFLOPs            = 10
)

// elementBytes is the size of an element in training.
const elementBytes = 4

// product is the operations of n rows through the map.
func (l linear) product(n int) float64 { return 2 * float64(n) * float64(l.in) * float64(l.out) }

// trafficBytes is the least memory traffic of the three phases of a segment: forward reads
// parameters and In and writes Out and Saved; backward-input reads parameters, Saved and the
// gradients of Out and writes those of In and Stash; backward-weight, where there are parameters,
// reads In, Saved and Stash and writes gradients.
func trafficBytes(s Spec, rows, context int) float64 {
	sum := func(ports []Port) (n float64) {
		for _, p := range ports {
			n += float64(p.Len(rows, context))
		}
		return n
	}
	var params float64
	for _, p := range s.Params {
		params += float64(p.Len())
	}
	in, out, saved, stash := sum(s.In), sum(s.Out), sum(s.Saved), sum(s.Stash)
	n := 2*params + 2*in + 2*out + 2*saved + stash
	if params > 0 {
		n += params + in + saved + stash
	}
	return elementBytes * n
}
