package cpu

import (
	"math"

	"github.com/troupe-train/troupe/device"
)

// Attention by blocks, for float32 with vector kernels and heads of a multiple of 16 (Dao et al.
// 2022 and 2023): small matrix products of a few rows of queries with a block of keys, which never
// leave the first-level caches, and a softmax with a running maximum from block to block. Of the scores of a
// block, only those at and before the diagonal are made, up to the width of a kernel.
//
// The blocks begin at multiples of their size, so the order of every sum depends on the shape
// alone. Scores after the diagonal count as 0: a NaN or infinity in a value may spoil up to
// seven rows before it, those that share its kernel.
const (
	forwardKeys = 256
	// backwardBlock is the rows of a block of queries, and of keys, in the backward pass.
	backwardBlock = 128
)

// head is one head of one sequence.
type head struct {
	s     device.AttentionShape
	table *productTable
	ops   *rowOps[float32]
	b, h  int
}

// width is the elements of a row of o; a row of qkv has three times as many.
func (t *head) width() int { return t.s.Heads * t.s.HeadDim }

// keysT packs columns klo..khi of k^T or v^T (which 1 or 2) into panels: [headDim, keys].
func (t *head) packT(dst, qkv []float32, which, klo, khi int, p panels) {
	d := t.s.HeadDim
	for i := range p.count() {
		column, width := p.at(i)
		wide := 16 * width
		panel := dst[column*d:][:wide*d]
		for j := 0; j < wide; j += 8 {
			if klo+column+j+8 <= khi {
				src := part(qkv, t.s, which, t.b, t.h, klo+column+j)
				t.table.transpose(&panel[j], 4*wide, &src[0], 12*t.width(), d/8)
				continue
			}
			for c := j; c < j+8; c++ {
				if klo+column+c < khi {
					for e, v := range part(qkv, t.s, which, t.b, t.h, klo+column+c) {
						panel[e*wide+c] = v
					}
				} else {
					for e := range d {
						panel[e*wide+c] = 0
					}
				}
			}
		}
	}
}

// scores is dst[rows, columns] = a b, where b is packed panels: a is rows of headDim elements, lda apart.
// Columns beyond n are made only to the next multiple of 16.
func (t *head) scores(ri int, dst []float32, ld int, a *float32, lda int, b []float32, p panels, n int) {
	d := t.s.HeadDim
	for i := range p.count() {
		column, width := p.at(i)
		if column >= n {
			return
		}
		need := min(width, tilesOf(n-column, 16))
		t.table.kernel[0][ri][t.table.widthIndex(need)](d, a, 4*lda, &b[column*d], 64*width, &dst[column], 4*ld, 0)
	}
}

// mix is c[rows, headDim] = (or +=) A b: A(i,k) is by rows or by columns, b is k rows of headDim elements.
func (t *head) mix(columns, ri, k int, a *float32, lda int, b []float32, ldb int, c []float32, ldc, add int) {
	p := panelsOf(t.s.HeadDim, t.table.widths)
	for i := range p.count() {
		column, width := p.at(i)
		t.table.kernel[columns][ri][t.table.widthIndex(width)](k, a, 4*lda, &b[column], 4*ldb, &c[column], 4*ldc, add)
	}
}

type attentionBlocksTask struct {
	*stored[float32]
	blocks           head
	perHead, rowsPer int
}

func (t *attentionBlocksTask) run(p *pool, k *blockedTask, h *stored[float32]) {
	*t = attentionBlocksTask{stored: h, blocks: head{table: k.table, ops: k.ops}}
	// A tile is a head, or part of its rows where there are too few heads to go round.
	parts := 1
	if all := h.s.Batch * h.s.Heads; len(p.workers) > 1 && all < 4*len(p.workers) {
		parts = tilesOf(4*len(p.workers), max(1, all))
	}
	t.rowsPer = max(64, tilesOf(tilesOf(h.s.Tokens, parts), 64)*64)
	t.perHead = tilesOf(h.s.Tokens, t.rowsPer)
	p.run(t, h.s.Batch*h.s.Heads*t.perHead)
}

func (t *attentionBlocksTask) tile(n int, w *worker) {
	lo, hi := span(n%t.perHead, t.s.Tokens, t.rowsPer)
	own := forwardKeys*(t.s.HeadDim+t.blocks.table.rows[0]) + 2*t.rowsPer
	memory := scratch[float32](w, own+t.gathers(hi))
	all, b, h := t.stored.head(n/t.perHead, hi, memory[own:])
	me := t.blocks
	me.s, me.b, me.h = all.s, b, h
	me.rows(&all, memory[:own], lo, hi)
	t.scatter(n/t.perHead, &all, lo, hi)
}

// rows makes rows [lo, hi) of o.
func (t *head) rows(all *heads[float32], memory []float32, lo, hi int) {
	s, d := t.s, t.s.HeadDim
	rows := t.table.rows[0]
	keys, scores := memory[:forwardKeys*d], memory[forwardKeys*d:][:forwardKeys*rows]
	stats := memory[forwardKeys*(d+rows):]
	tops, sums := stats[:len(stats)/2], stats[len(stats)/2:]
	scale := 1 / sqrt(float32(d))
	for klo := 0; klo < hi; klo += forwardKeys {
		khi := min(klo+forwardKeys, hi)
		p := panelsOf(khi-klo, t.table.widths)
		t.packT(keys, all.qkv, 1, klo, khi, p)
		r := max(lo, klo)
		for ri, rows := range t.table.rows {
			for ; r+rows <= hi; r += rows {
				n := min(khi, r+rows) - klo
				t.scores(ri, scores, forwardKeys, &all.q(t.b, t.h, r)[0], 3*t.width(), keys, p, n)
				for i := range rows {
					t.softmax(all.o, scores[i*forwardKeys:], r+i, klo, khi, n, &tops[r+i-lo], &sums[r+i-lo], scale)
				}
				add := min(klo, 1)
				t.mix(0, ri, n, &scores[0], forwardKeys, all.qkv[offset(s, 2, t.b, t.h, klo):], 3*t.width(),
					all.o[(t.b*s.Tokens+r)*t.width()+t.h*d:], t.width(), add)
			}
		}
	}
	for i := lo; i < hi; i++ {
		t.ops.scale(&outRow(all.o, s, t.b, t.h, i)[0], d, 1/sums[i-lo])
		all.lse[all.stat(t.b, t.h, i)] = tops[i-lo] + float32(math.Log(float64(sums[i-lo])))
	}
}

// softmax turns row i's scores of the keys from klo on into exp(score - maximum so far), 0 after
// the diagonal up to n, and scales what the row has summed up in o when the maximum moves.
func (t *head) softmax(o, scores []float32, i, klo, khi, n int, top, sum *float32, scale float32) {
	have := min(khi, i+1) - klo
	m := t.ops.largest(&scores[0], have) * scale
	if klo > 0 {
		if m > *top {
			shrink := exp(*top - m)
			*sum *= shrink
			t.ops.scale(&outRow(o, t.s, t.b, t.h, i)[0], t.s.HeadDim, shrink)
		} else {
			m = *top
		}
	} else {
		*sum = 0
	}
	*sum += t.ops.expSum(&scores[0], &scores[0], have, scale, m)
	*top = m
	clear(scores[have:n])
}

// offset of row i of the query, key or value (which 0, 1, 2) of a head in qkv.
func offset(s device.AttentionShape, which, b, h, i int) int {
	return (((b*s.Tokens+i)*3+which)*s.Heads + h) * s.HeadDim
}

type attentionBlocksBackTask struct {
	*storedBack[float32]
	blocks head
}

func (t *attentionBlocksBackTask) run(p *pool, k *blockedTask, back *storedBack[float32]) {
	*t = attentionBlocksBackTask{back, head{table: k.table, ops: k.ops}}
	p.run(t, back.s.Batch*back.s.Heads)
}

func (t *attentionBlocksBackTask) tile(n int, w *worker) {
	const own = 2 * backwardBlock
	d := t.s.HeadDim
	memory := scratch[float32](w, own*(d+backwardBlock)+t.gathersBack())
	all, b, h := t.back(n, memory[own*(d+backwardBlock):])
	me := headBack{t.blocks, &all}
	me.head.s, me.b, me.h = all.s, b, h
	me.tile(memory[:own*(d+backwardBlock)])
	t.scatterBack(n, &all)
}

// headBack is one head of one sequence with its gradients.
type headBack struct {
	head
	*headsBack[float32]
}

// tile takes, for each block of keys, the blocks of queries at and after it.
// dk and dv of a block are summed over queries, dq over blocks of keys, in ascending order.
func (t *headBack) tile(memory []float32) {
	s, d := t.head.s, t.head.s.HeadDim
	const block = backwardBlock
	keysT, valuesT := memory[:block*d], memory[block*d:2*block*d]
	p, ds := memory[2*block*d:][:block*block], memory[2*block*d+block*block:][:block*block]
	delta := t.work[t.stat(t.b, t.h, 0):][:s.Tokens]
	for i := range delta {
		delta[i] = t.ops.dot(&outRow(t.do, s, t.b, t.h, i)[0], &outRow(t.o, s, t.b, t.h, i)[0], d)
	}
	for klo := 0; klo < s.Tokens; klo += block {
		khi := min(klo+block, s.Tokens)
		cut := panelsOf(khi-klo, t.table.widths)
		t.packT(keysT, t.qkv, 1, klo, khi, cut)
		t.packT(valuesT, t.qkv, 2, klo, khi, cut)
		for lo := klo; lo < s.Tokens; lo += block {
			hi := min(lo+block, s.Tokens)
			t.queries(p, ds, keysT, valuesT, cut, klo, khi, lo, hi)
			t.keys(p, ds, klo, khi, lo, hi)
		}
	}
}

// queries makes p and ds of queries [lo, hi) and keys [klo, khi), and adds ds k to dq.
func (t *headBack) queries(p, ds, keysT, valuesT []float32, cut panels, klo, khi, lo, hi int) {
	h := &t.head
	s, d, width := h.s, h.s.HeadDim, h.width()
	const block = backwardBlock
	scale := 1 / sqrt(float32(d))
	r := lo
	for ri, rows := range h.table.rows {
		for ; r+rows <= hi; r += rows {
			have := min(khi, r+rows) - klo
			pr, dr := p[(r-lo)*block:], ds[(r-lo)*block:]
			h.scores(ri, pr, block, &t.qkv[offset(s, 0, h.b, h.h, r)], 3*width, keysT, cut, have)
			h.scores(ri, dr, block, &outRow(t.do, s, h.b, h.h, r)[0], width, valuesT, cut, have)
			for i := range rows {
				m := min(khi, r+i+1) - klo
				at := i * block
				t.ops.softmaxBackward(&pr[at], &dr[at], m, scale, t.lse[t.stat(h.b, h.h, r+i)], t.work[t.stat(h.b, h.h, r+i)])
				// Products read up to the widest kernel beyond the diagonal.
				end := min(block, m+8)
				clear(pr[at+m : at+end])
				clear(dr[at+m : at+end])
			}
			h.mix(0, ri, have, &dr[0], block, t.qkv[offset(s, 1, h.b, h.h, klo):], 3*width, t.dqkv[offset(s, 0, h.b, h.h, r):], 3*width, min(klo, 1))
		}
	}
}

// keys adds p^T do to dv and ds^T q to dk.
func (t *headBack) keys(p, ds []float32, klo, khi, lo, hi int) {
	h := &t.head
	s, d, width := h.s, h.s.HeadDim, h.width()
	const block = backwardBlock
	add := 0
	if lo > klo {
		add = 1
	}
	j := klo
	for ri, rows := range h.table.rows {
		for ; j+rows <= khi; j += rows {
			from := max(lo, j) // the queries before the first of these keys do not see any of them
			at := (from-lo)*block + j - klo
			h.mix(1, ri, hi-from, &p[at], block, t.do[(h.b*s.Tokens+from)*width+h.h*d:], width, t.dqkv[offset(s, 2, h.b, h.h, j):], 3*width, add)
			h.mix(1, ri, hi-from, &ds[at], block, t.qkv[offset(s, 0, h.b, h.h, from):], 3*width, t.dqkv[offset(s, 1, h.b, h.h, j):], 3*width, add)
		}
	}
}
