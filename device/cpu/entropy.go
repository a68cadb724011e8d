package cpu

import (
	"math"

	"github.com/troupe-train/troupe/device"
)

type entropyTask[T Float] struct {
	loss, lse, logits []T
	targets           []int32
	vocab, per        int
}

func (t *entropyTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.targets), t.per)
	for r := lo; r < hi; r++ {
		logits := t.logits[r*t.vocab : (r+1)*t.vocab]
		lse := logSumExp(logits)
		t.lse[r] = lse
		t.loss[r] = lse - logits[t.targets[r]]
	}
}

// logSumExp is max + log(sum of exp(x - max)). An infinite maximum leaves infinity or NaN.
func logSumExp[T Float](x []T) T {
	top := largest(x)
	var sum T
	for _, v := range x {
		sum += exp(v - top)
	}
	return top + T(math.Log(float64(sum)))
}

// largest is the maximum of the elements that are numbers.
func largest[T Float](x []T) T {
	top := T(math.Inf(-1))
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	return top
}

func (k *kernels[T]) CrossEntropy(loss, lse, logits, targets device.Slice, tokens, vocab int) {
	const name = "CrossEntropy"
	k.entropy = entropyTask[T]{k.in(name, "loss", loss, tokens), k.in(name, "lse", lse, tokens), k.in(name, "logits", logits, tokens*vocab),
		checked(name, targets, tokens, vocab), vocab, rowsPerTile(4 * vocab)}
	k.pool.run(&k.entropy, tilesOf(tokens, k.entropy.per))
}

type entropyBackTask[T Float] struct {
	dlogits, logits, lse []T
	targets              []int32
	vocab, per           int
	scale                T
}

func (t *entropyBackTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.targets), t.per)
	for r := lo; r < hi; r++ {
		logits := t.logits[r*t.vocab : (r+1)*t.vocab]
		d := t.dlogits[r*t.vocab : (r+1)*t.vocab][:len(logits)]
		lse := t.lse[r]
		target := t.targets[r]
		for j, v := range logits {
			d[j] = exp(v-lse) * t.scale
		}
		// (p - 1) * scale, not p*scale - scale: near p = 1 the second loses digits.
		d[target] = (exp(t.logits[r*t.vocab+int(target)]-lse) - 1) * t.scale
	}
}

func (k *kernels[T]) CrossEntropyBackward(dlogits, logits, lse, targets device.Slice, tokens, vocab int, scale float64) {
	const name = "CrossEntropyBackward"
	k.entropyBack = entropyBackTask[T]{k.in(name, "dlogits", dlogits, tokens*vocab), k.in(name, "logits", logits, tokens*vocab),
		k.in(name, "lse", lse, tokens), checked(name, targets, tokens, vocab), vocab, rowsPerTile(4 * vocab), T(scale)}
	k.pool.run(&k.entropyBack, tilesOf(tokens, k.entropyBack.per))
}
