package cpu

import (
	"fmt"
	"math"

	"github.com/troupe-train/troupe/device"
)

// heads finds one head of one sequence in qkv and o.
type heads[T Float] struct {
	s      device.AttentionShape
	qkv, o []T
	lse    []T
}

// q, k and v are row i of the query, key and value of head h of sequence b; [headDim].
func (t *heads[T]) q(b, h, i int) []T { return t.part(0, b, h, i) }
func (t *heads[T]) k(b, h, i int) []T { return t.part(1, b, h, i) }
func (t *heads[T]) v(b, h, i int) []T { return t.part(2, b, h, i) }

func (t *heads[T]) part(which, b, h, i int) []T { return part(t.qkv, t.s, which, b, h, i) }

// stat is the index of row i of a head in lse.
func (t *heads[T]) stat(b, h, i int) int { return (b*t.s.Heads+h)*t.s.Tokens + i }

func part[T Float](qkv []T, s device.AttentionShape, which, b, h, i int) []T {
	p := (((b*s.Tokens+i)*3+which)*s.Heads + h) * s.HeadDim
	return qkv[p : p+s.HeadDim : p+s.HeadDim]
}

func outRow[T Float](o []T, s device.AttentionShape, b, h, i int) []T {
	p := ((b*s.Tokens+i)*s.Heads + h) * s.HeadDim
	return o[p : p+s.HeadDim : p+s.HeadDim]
}

func dot[T Float](a, b []T) T {
	b = b[:len(a)]
	var s T
	for i, v := range a {
		s += v * b[i]
	}
	return s
}

// axpy is y += a x.
func axpy[T Float](y []T, a T, x []T) {
	x = x[:len(y)]
	for i := range y {
		y[i] += a * x[i]
	}
}

// attentionRows is the rows of one head in a tile.
const attentionRows = 32

type attentionTask[T Float] struct {
	stored[T]
	perHead int // tiles of a head
}

func (t *attentionTask[T]) tile(n int, w *worker) {
	lo, hi := span(n%t.perHead, t.s.Tokens, attentionRows)
	all, b, h := t.head(n/t.perHead, hi, scratch[T](w, t.gathers(hi)))
	all.rows(b, h, lo, hi)
	t.scatter(n/t.perHead, &all, lo, hi)
}

// rows keeps, for each row, the running maximum m and the sum l of exp(score - m), and scales what
// is already in o when the maximum moves (Milakov and Gimelshein 2018).
func (t *heads[T]) rows(b, h, lo, hi int) {
	scale := 1 / sqrt(T(t.s.HeadDim))
	for i := lo; i < hi; i++ {
		q, o := t.q(b, h, i), outRow(t.o, t.s, b, h, i)
		clear(o)
		m, l := T(math.Inf(-1)), T(0)
		for j := 0; j <= i; j++ {
			score := dot(q, t.k(b, h, j)) * scale
			if score > m {
				shrink := exp(m - score)
				l *= shrink
				for d := range o {
					o[d] *= shrink
				}
				m = score
			}
			p := exp(score - m)
			l += p
			axpy(o, p, t.v(b, h, j))
		}
		for d := range o {
			o[d] /= l
		}
		t.lse[t.stat(b, h, i)] = m + T(math.Log(float64(l)))
	}
}

func (k *kernels[T]) Attention(o, lse, qkv device.Slice, s device.AttentionShape) {
	const name = "Attention"
	checkShape(name, s)
	k.attention = attentionTask[T]{k.stored(name, qkv, o, lse, s), tilesOf(s.Tokens, attentionRows)}
	if k.blocked != nil && s.HeadDim%16 == 0 {
		k.attentionBlocks.run(k.pool, k.blocked, any(&k.attention.stored).(*stored[float32]))
		return
	}
	k.pool.run(&k.attention, s.Batch*s.Heads*k.attention.perHead)
}

func checkShape(name string, s device.AttentionShape) {
	if s.Batch < 0 || s.Tokens < 0 || s.Heads < 1 || s.HeadDim < 1 {
		panic(fmt.Sprintf("cpu: %s: shape %+v", name, s))
	}
}

type attentionBackTask[T Float] struct{ storedBack[T] }

func (t *attentionBackTask[T]) tile(n int, w *worker) {
	all, b, h := t.back(n, scratch[T](w, t.gathersBack()))
	all.tile(b, h)
	t.scatterBack(n, &all)
}

// headsBack is heads with gradients; work is [batch, heads, tokens].
type headsBack[T Float] struct {
	heads[T]
	dqkv, do, work []T
}

// tile is one head of one sequence. With p = exp(score - lse), dp = do v^T and
// delta = sum of do*o in a row: ds = p (dp - delta), dq = ds k, dk = ds^T q, dv = p^T do
// (Dao et al. 2022, appendix B.2). Rows are added to dk and dv in ascending order.
func (t *headsBack[T]) tile(b, h int) {
	scale := 1 / sqrt(T(t.s.HeadDim))
	for i := range t.s.Tokens {
		clear(part(t.dqkv, t.s, 0, b, h, i))
		clear(part(t.dqkv, t.s, 1, b, h, i))
		clear(part(t.dqkv, t.s, 2, b, h, i))
	}
	delta := t.work[t.stat(b, h, 0):][:t.s.Tokens]
	for i := range delta {
		delta[i] = dot(outRow(t.do, t.s, b, h, i), outRow(t.o, t.s, b, h, i))
	}
	for i := range t.s.Tokens {
		q, do, dq := t.q(b, h, i), outRow(t.do, t.s, b, h, i), part(t.dqkv, t.s, 0, b, h, i)
		lse := t.lse[t.stat(b, h, i)]
		for j := 0; j <= i; j++ {
			k := t.k(b, h, j)
			p := exp(dot(q, k)*scale - lse)
			ds := p * (dot(do, t.v(b, h, j)) - delta[i]) * scale
			axpy(dq, ds, k)
			axpy(part(t.dqkv, t.s, 1, b, h, j), ds, q)
			axpy(part(t.dqkv, t.s, 2, b, h, j), p, do)
		}
	}
}

func (k *kernels[T]) AttentionBackward(dqkv, do, o, lse, qkv, work device.Slice, s device.AttentionShape) {
	const name = "AttentionBackward"
	checkShape(name, s)
	n := s.Batch * s.Tokens * s.Heads
	k.attentionBack = attentionBackTask[T]{storedBack[T]{k.stored(name, qkv, o, lse, s),
		k.of(name, "dqkv", dqkv, 3*n*s.HeadDim), k.of(name, "do", do, n*s.HeadDim), k.atLeast(name, "work", work, k.AttentionWork(s))}}
	if k.blocked != nil && s.HeadDim%16 == 0 {
		k.attentionBlocksBack.run(k.pool, k.blocked, any(&k.attentionBack.storedBack).(*storedBack[float32]))
		return
	}
	k.pool.run(&k.attentionBack, s.Batch*s.Heads)
}

func (k *kernels[T]) AttentionWork(s device.AttentionShape) int { return s.Batch * s.Heads * s.Tokens }
