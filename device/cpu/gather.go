package cpu

import "github.com/troupe-train/troupe/device"

// stored is qkv and o as they lie in memory. Attention works on them where they lie; where one is bfloat16, on a
// head that is gathered in scratch memory, as the one head of the one sequence of a tensor of its own, with the same bits.
type stored[T Float] struct {
	ops    *rowOps[T]
	s      device.AttentionShape
	qkv, o operand[T]
	lse    []T
}

func (k *kernels[T]) stored(name string, qkv, o, lse device.Slice, s device.AttentionShape) stored[T] {
	n := s.Batch * s.Tokens * s.Heads
	return stored[T]{k.ops, s, k.of(name, "qkv", qkv, 3*n*s.HeadDim), k.of(name, "o", o, n*s.HeadDim), k.in(name, "lse", lse, n)}
}

// gathers is the elements of memory that head needs for tokens rows.
func (t *stored[T]) gathers(tokens int) int {
	if !anyNarrow(&t.qkv, &t.o) {
		return 0
	}
	return 4 * tokens * t.s.HeadDim
}

// head is where head n, counted over the batch, is: head h of sequence b of what is returned. At least the first
// tokens rows are there; o has undefined contents where it was gathered.
func (t *stored[T]) head(n, tokens int, memory []T) (all heads[T], b, h int) {
	if !anyNarrow(&t.qkv, &t.o) {
		return heads[T]{t.s, t.qkv.wide, t.o.wide, t.lse}, n / t.s.Heads, n % t.s.Heads
	}
	d := t.s.HeadDim
	one := heads[T]{s: device.AttentionShape{Batch: 1, Tokens: tokens, Heads: 1, HeadDim: d},
		qkv: memory[:3*tokens*d], o: memory[3*tokens*d:][:tokens*d], lse: t.lse[n*t.s.Tokens:][:tokens]}
	t.pieces(n, tokens, 3, func(lo, at int) { t.load(one.qkv[at:at+d], &t.qkv, lo) })
	return one, 0, 0
}

// pieces calls f with where the pieces of headDim elements of head n lie, of a tensor with per of them in a row, and where
// they are gathered.
func (t *stored[T]) pieces(n, tokens, per int, f func(lo, at int)) {
	b, h, d := n/t.s.Heads, n%t.s.Heads, t.s.HeadDim
	for i := range tokens {
		for which := range per {
			f((((b*t.s.Tokens+i)*per+which)*t.s.Heads+h)*d, (i*per+which)*d)
		}
	}
}

func (t *stored[T]) load(dst []T, o *operand[T], lo int) {
	if o.narrow != nil {
		t.ops.read(dst, o.narrow[lo:lo+len(dst)])
	} else {
		copy(dst, o.wide[lo:])
	}
}

func (t *stored[T]) save(o *operand[T], lo int, src []T) {
	if o.narrow != nil {
		t.ops.write(o.narrow[lo:lo+len(src)], src)
	} else {
		copy(o.wide[lo:], src)
	}
}

// scatter stores rows [lo, hi) of o of head n where they were gathered.
func (t *stored[T]) scatter(n int, one *heads[T], lo, hi int) {
	if !anyNarrow(&t.qkv, &t.o) {
		return
	}
	b, h, d := n/t.s.Heads, n%t.s.Heads, t.s.HeadDim
	for i := lo; i < hi; i++ {
		t.save(&t.o, ((b*t.s.Tokens+i)*t.s.Heads+h)*d, one.o[i*d:(i+1)*d])
	}
}

// storedBack is stored with gradients.
type storedBack[T Float] struct {
	stored[T]
	dqkv, do operand[T]
	work     []T
}

func (t *storedBack[T]) narrow() bool { return anyNarrow(&t.qkv, &t.o, &t.dqkv, &t.do) }

// gathersBack is the elements of memory that back needs.
func (t *storedBack[T]) gathersBack() int {
	if !t.narrow() {
		return 0
	}
	return 8 * t.s.Tokens * t.s.HeadDim
}

// back is head for the backward pass: all rows, and o as well.
func (t *storedBack[T]) back(n int, memory []T) (all headsBack[T], b, h int) {
	if !t.narrow() {
		return headsBack[T]{heads[T]{t.s, t.qkv.wide, t.o.wide, t.lse}, t.dqkv.wide, t.do.wide, t.work}, n / t.s.Heads, n % t.s.Heads
	}
	d, tokens := t.s.HeadDim, t.s.Tokens
	size := tokens * d
	one := headsBack[T]{
		heads: heads[T]{s: device.AttentionShape{Batch: 1, Tokens: tokens, Heads: 1, HeadDim: d},
			qkv: memory[:3*size], o: memory[3*size : 4*size], lse: t.lse[n*tokens:][:tokens]},
		do: memory[4*size : 5*size], dqkv: memory[5*size : 8*size], work: t.work[n*tokens:][:tokens],
	}
	t.pieces(n, tokens, 3, func(lo, at int) { t.load(one.qkv[at:at+d], &t.qkv, lo) })
	t.pieces(n, tokens, 1, func(lo, at int) {
		t.load(one.o[at:at+d], &t.o, lo)
		t.load(one.do[at:at+d], &t.do, lo)
	})
	return one, 0, 0
}

// scatterBack stores dqkv of head n where it was gathered.
func (t *storedBack[T]) scatterBack(n int, one *headsBack[T]) {
	if t.narrow() {
		d := t.s.HeadDim
		t.pieces(n, t.s.Tokens, 3, func(lo, at int) { t.save(&t.dqkv, lo, one.dqkv[at:at+d]) })
	}
}
