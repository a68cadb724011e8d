package cpu

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
)

type embedTask[T Float] struct {
	ops                             *rowOps[T]
	y, table, positions             operand[T]
	tokens                          []int32
	context, width, vocabulary, per int
}

func (t *embedTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, len(t.tokens), t.per)
	s := bandsOf(w, t.ops, 3, t.width, &t.y, &t.table, &t.positions)
	for r := lo; r < hi; r++ {
		e, p := int(t.tokens[r])*t.width, r%t.context*t.width
		y, row := t.y.room(&s, 0, r*t.width, (r+1)*t.width), t.table.read(&s, 1, e, e+t.width)
		if t.positions.none() {
			copy(y, row)
		} else {
			t.ops.add(first(y), first(row), first(t.positions.read(&s, 2, p, p+t.width)), t.width)
		}
		t.y.put(t.ops, y, r*t.width)
	}
}

func (k *kernels[T]) Embed(y, tokens, table, positions device.Slice, rows, context, width int) {
	const name = "Embed"
	n := rows * context
	vocabulary := table.Len / max(1, width)
	var p operand[T]
	if !positions.IsZero() {
		p = k.ofAtLeast(name, "positions", positions, context*width)
	}
	k.embed = embedTask[T]{k.ops, k.of(name, "y", y, n*width), k.of(name, "table", table, vocabulary*width),
		p, checked(name, tokens, n, vocabulary), context, width, vocabulary, rowsPerTile(width)}
	k.pool.run(&k.embed, tilesOf(n, k.embed.per))
}

// checked is the memory of n token ids, all of which must be inside the vocabulary.
func checked(kernel string, tokens device.Slice, n, vocabulary int) []int32 {
	ids := ints(kernel, "tokens", tokens, n)
	for i, id := range ids {
		if uint(id) >= uint(vocabulary) {
			panic(fmt.Sprintf("cpu: %s: token %d at %d; the vocabulary is 0..%d", kernel, id, i, vocabulary-1))
		}
	}
	return ids
}

type embedTableTask[T Float] struct {
	ops    *rowOps[T]
	dtable []T
	dy     operand[T]
	tokens []int32
	width  int
	per    int // columns of a tile
}

// tile owns columns, so that the contributions to an element are added by one thread, in order.
func (t *embedTableTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.width, t.per)
	for r := 0; r < len(t.dtable); r += t.width {
		clear(t.dtable[r+lo : r+hi])
	}
	s := bandsOf(w, t.ops, 1, t.per, &t.dy)
	for r, id := range t.tokens {
		dy := t.dy.read(&s, 0, r*t.width+lo, r*t.width+hi)
		d := t.dtable[int(id)*t.width+lo : int(id)*t.width+hi]
		t.ops.add(first(d), first(d), first(dy), hi-lo)
	}
}

type embedPositionsTask[T Float] struct {
	ops                  *rowOps[T]
	dpositions           []T
	dy                   operand[T]
	rows, context, width int
}

// tile owns one position.
func (t *embedPositionsTask[T]) tile(i int, w *worker) {
	d := t.dpositions[i*t.width : (i+1)*t.width]
	clear(d)
	if i >= t.context {
		return
	}
	s := bandsOf(w, t.ops, 1, t.width, &t.dy)
	for r := range t.rows {
		at := (r*t.context + i) * t.width
		t.ops.add(first(d), first(d), first(t.dy.read(&s, 0, at, at+t.width)), t.width)
	}
}

func (k *kernels[T]) EmbedBackward(dtable, dpositions, dy, tokens device.Slice, rows, context, width int) {
	const name = "EmbedBackward"
	n := rows * context
	vocabulary := dtable.Len / max(1, width)
	g := k.of(name, "dy", dy, n*width)
	k.embedTable = embedTableTask[T]{k.ops, k.in(name, "dtable", dtable, vocabulary*width), g, checked(name, tokens, n, vocabulary), width, columnsOf(k.pool, width)}
	k.pool.run(&k.embedTable, tilesOf(width, k.embedTable.per))
	if dpositions.IsZero() {
		return
	}
	held := dpositions.Len / max(1, width)
	if held < context {
		panic(fmt.Sprintf("cpu: %s: dpositions holds %d positions, the context is %d", name, held, context))
	}
	k.embedPositions = embedPositionsTask[T]{k.ops, k.in(name, "dpositions", dpositions, held*width), g, rows, context, width}
	k.pool.run(&k.embedPositions, held)
}
