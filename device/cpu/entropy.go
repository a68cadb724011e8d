package cpu

import (
	"math"

	"github.com/troupe-train/troupe/device"
)

type entropyTask[T Float] struct {
	ops               *rowOps[T]
	loss, lse, logits []T
	targets           []int32
	vocab, per        int
}

// tile: lse is max + log(sum of exp(x - max)). An infinite maximum leaves NaN.
func (t *entropyTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.targets), t.per)
	for r := lo; r < hi; r++ {
		logits := t.logits[r*t.vocab : (r+1)*t.vocab]
		top := t.ops.largest(first(logits), t.vocab)
		lse := top + T(math.Log(float64(t.ops.expTotal(first(logits), t.vocab, 1, top))))
		t.lse[r] = lse
		t.loss[r] = lse - logits[t.targets[r]]
	}
}

func (k *kernels[T]) CrossEntropy(loss, lse, logits, targets device.Slice, tokens, vocab int) {
	const name = "CrossEntropy"
	k.entropy = entropyTask[T]{k.ops, k.in(name, "loss", loss, tokens), k.in(name, "lse", lse, tokens), k.in(name, "logits", logits, tokens*vocab),
		checked(name, targets, tokens, vocab), vocab, rowsPerTile(4 * vocab)}
	k.pool.run(&k.entropy, tilesOf(tokens, k.entropy.per))
}

type entropyBackTask[T Float] struct {
	ops                  *rowOps[T]
	dlogits, logits, lse []T
	targets              []int32
	vocab, per           int
	scale                T
}

func (t *entropyBackTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, len(t.targets), t.per)
	for r := lo; r < hi; r++ {
		logits, d := t.logits[r*t.vocab:(r+1)*t.vocab], t.dlogits[r*t.vocab:(r+1)*t.vocab]
		t.ops.expScale(first(d), first(logits), t.vocab, t.lse[r], t.scale)
		d[t.targets[r]] -= t.scale
	}
}

func (k *kernels[T]) CrossEntropyBackward(dlogits, logits, lse, targets device.Slice, tokens, vocab int, scale float64) {
	const name = "CrossEntropyBackward"
	k.entropyBack = entropyBackTask[T]{k.ops, k.in(name, "dlogits", dlogits, tokens*vocab), k.in(name, "logits", logits, tokens*vocab),
		k.in(name, "lse", lse, tokens), checked(name, targets, tokens, vocab), vocab, rowsPerTile(4 * vocab), T(scale)}
	k.pool.run(&k.entropyBack, tilesOf(tokens, k.entropyBack.per))
}
