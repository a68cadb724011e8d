package cpu

import "github.com/troupe-train/troupe/device"

type swigluTask[T Float] struct {
	ops              *rowOps[T]
	y, x             operand[T]
	rows, width, per int
}

func (t *swigluTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.rows, t.per)
	n := t.width
	s := bandsOf(w, t.ops, 2, 2*n, &t.y, &t.x)
	for r := lo; r < hi; r++ {
		x, y := t.x.read(&s, 0, 2*r*n, 2*(r+1)*n), t.y.room(&s, 1, r*n, (r+1)*n)
		t.ops.swiglu(first(y), first(x), first(x[n:]), n)
		t.y.put(t.ops, y, r*n)
	}
}

func (k *kernels[T]) SwiGLU(y, x device.Slice, rows, width int) {
	const name = "SwiGLU"
	k.swiglu = swigluTask[T]{k.ops, k.of(name, "y", y, rows*width), k.of(name, "x", x, 2*rows*width), rows, width, rowsPerTile(4 * width)}
	k.pool.run(&k.swiglu, tilesOf(rows, k.swiglu.per))
}

type swigluBackTask[T Float] struct {
	ops              *rowOps[T]
	dx, dy, x        operand[T]
	rows, width, per int
}

func (t *swigluBackTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.rows, t.per)
	n := t.width
	s := bandsOf(w, t.ops, 3, 2*n, &t.dx, &t.dy, &t.x)
	for r := lo; r < hi; r++ {
		x, dx := t.x.read(&s, 0, 2*r*n, 2*(r+1)*n), t.dx.room(&s, 1, 2*r*n, 2*(r+1)*n)
		t.ops.swigluBackward(first(dx), first(dx[n:]), first(t.dy.read(&s, 2, r*n, (r+1)*n)), first(x), first(x[n:]), n)
		t.dx.put(t.ops, dx, 2*r*n)
	}
}

func (k *kernels[T]) SwiGLUBackward(dx, dy, x device.Slice, rows, width int) {
	const name = "SwiGLUBackward"
	k.swigluBack = swigluBackTask[T]{k.ops, k.of(name, "dx", dx, 2*rows*width), k.of(name, "dy", dy, rows*width),
		k.of(name, "x", x, 2*rows*width), rows, width, rowsPerTile(4 * width)}
	k.pool.run(&k.swigluBack, tilesOf(rows, k.swigluBack.per))
}
