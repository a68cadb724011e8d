package cpu

import (
	"math"
	"unsafe"

	"github.com/troupe-train/troupe/device"
)

type adamwTask[T Float] struct {
	ops                         *rowOps[T]
	next, m2, v2, w, m, v, grad []T
	// The factors of a step, made once in float64:
	// step = lr/(1-beta1^t), rsqrt = 1/sqrt(1-beta2^t), so that
	// lr*mhat/(sqrt(vhat)+eps) = step*m / (sqrt(v)*rsqrt + eps).
	gradScale, beta1, rest1, beta2, rest2, step, rsqrt, epsilon, decay T
}

// pastCaches is the elements from which on a step writes past the caches: its seven vectors are then more than a cache
// holds from one step to the next.
const pastCaches = 1 << 18

func (t *adamwTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.next), tileElements)
	step := t.ops.adamw
	if len(t.next) >= pastCaches && isAligned(t.next) && isAligned(t.m2) && isAligned(t.v2) {
		step = t.ops.adamwPast
	}
	step(first(t.next[lo:hi]), first(t.m2[lo:hi]), first(t.v2[lo:hi]), first(t.w[lo:hi]), first(t.m[lo:hi]), first(t.v[lo:hi]), first(t.grad[lo:hi]),
		hi-lo, t.gradScale, t.beta1, t.rest1, t.beta2, t.rest2, t.step, t.rsqrt, t.epsilon, t.decay)
}

func (k *kernels[T]) AdamW(next, m2, v2, w, m, v, grad device.Slice, h device.AdamW) {
	const name = "AdamW"
	n := next.Len
	k.adamw = adamwTask[T]{
		k.ops, k.in(name, "next", next, n), k.in(name, "m2", m2, n), k.in(name, "v2", v2, n),
		k.in(name, "w", w, n), k.in(name, "m", m, n), k.in(name, "v", v, n), k.in(name, "grad", grad, n),
		T(h.GradScale), T(h.Beta1), T(1 - h.Beta1), T(h.Beta2), T(1 - h.Beta2),
		T(h.LR / (1 - math.Pow(h.Beta1, float64(h.Step)))), T(1 / math.Sqrt(1-math.Pow(h.Beta2, float64(h.Step)))),
		T(h.Epsilon), T(h.LR * h.Decay),
	}
	k.pool.run(&k.adamw, tilesOf(n, tileElements))
}

// isAligned reports whether a vector begins at the start of a cache line.
func isAligned[T Float](v []T) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(v)))%align == 0 }

type sgdTask[T Float] struct {
	ops                            *rowOps[T]
	next, m2, w, m, grad           []T
	gradScale, momentum, lr, decay T
}

func (t *sgdTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.next), tileElements)
	t.ops.sgd(first(t.next[lo:hi]), first(t.m2[lo:hi]), first(t.w[lo:hi]), first(t.m[lo:hi]), first(t.grad[lo:hi]),
		hi-lo, t.gradScale, t.momentum, t.lr, t.decay)
}

func (k *kernels[T]) SGD(next, m2, w, m, grad device.Slice, h device.SGD) {
	const name = "SGD"
	n := next.Len
	k.sgd = sgdTask[T]{k.ops, k.in(name, "next", next, n), k.in(name, "m2", m2, n), k.in(name, "w", w, n), k.in(name, "m", m, n), k.in(name, "grad", grad, n),
		T(h.GradScale), T(h.Momentum), T(h.LR), T(h.Decay)}
	k.pool.run(&k.sgd, tilesOf(n, tileElements))
}
