package cpu

import (
	"math"

	"github.com/troupe-train/troupe/device"
)

type entropyTask[T Float] struct {
	ops        *rowOps[T]
	loss, lse  []T
	logits     operand[T]
	targets    []int32
	vocab, per int
}

// tile: lse is max + log(sum of exp(x - max)). An infinite maximum leaves NaN.
func (t *entropyTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, len(t.targets), t.per)
	s := bandsOf(w, t.ops, 1, t.vocab, &t.logits)
	for r := lo; r < hi; r++ {
		logits := t.logits.read(&s, 0, r*t.vocab, (r+1)*t.vocab)
		top := t.ops.largest(first(logits), t.vocab)
		lse := top + T(math.Log(float64(t.ops.expTotal(first(logits), t.vocab, 1, top))))
		t.lse[r] = lse
		t.loss[r] = lse - logits[t.targets[r]]
	}
}

func (k *kernels[T]) CrossEntropy(loss, lse, logits, targets device.Slice, tokens, vocab int) {
	const name = "CrossEntropy"
	k.entropy = entropyTask[T]{k.ops, k.in(name, "loss", loss, tokens), k.in(name, "lse", lse, tokens), k.of(name, "logits", logits, tokens*vocab),
		checked(name, targets, tokens, vocab), vocab, rowsPerTile(4 * vocab)}
	k.pool.run(&k.entropy, tilesOf(tokens, k.entropy.per))
}

type entropyBackTask[T Float] struct {
	ops             *rowOps[T]
	dlogits, logits operand[T]
	lse             []T
	targets         []int32
	vocab, per      int
	scale           T
}

func (t *entropyBackTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, len(t.targets), t.per)
	s := bandsOf(w, t.ops, 2, t.vocab, &t.dlogits, &t.logits)
	for r := lo; r < hi; r++ {
		logits, d := t.logits.read(&s, 0, r*t.vocab, (r+1)*t.vocab), t.dlogits.room(&s, 1, r*t.vocab, (r+1)*t.vocab)
		t.ops.expScale(first(d), first(logits), t.vocab, t.lse[r], t.scale)
		d[t.targets[r]] -= t.scale
		t.dlogits.put(t.ops, d, r*t.vocab)
	}
}

func (k *kernels[T]) CrossEntropyBackward(dlogits, logits, lse, targets device.Slice, tokens, vocab int, scale float64) {
	const name = "CrossEntropyBackward"
	k.entropyBack = entropyBackTask[T]{k.ops, k.of(name, "dlogits", dlogits, tokens*vocab), k.of(name, "logits", logits, tokens*vocab),
		k.in(name, "lse", lse, tokens), checked(name, targets, tokens, vocab), vocab, rowsPerTile(4 * vocab), T(scale)}
	k.pool.run(&k.entropyBack, tilesOf(tokens, k.entropyBack.per))
}
