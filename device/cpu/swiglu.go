package cpu

import "github.com/troupe-train/troupe/device"

type swigluTask[T Float] struct {
	ops              *rowOps[T]
	y, x             []T
	rows, width, per int
}

func (t *swigluTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.rows, t.per)
	n := t.width
	for r := lo; r < hi; r++ {
		x := t.x[2*r*n : 2*(r+1)*n]
		t.ops.swiglu(first(t.y[r*n:(r+1)*n]), first(x), first(x[n:]), n)
	}
}

func (k *kernels[T]) SwiGLU(y, x device.Slice, rows, width int) {
	const name = "SwiGLU"
	k.swiglu = swigluTask[T]{k.ops, k.in(name, "y", y, rows*width), k.in(name, "x", x, 2*rows*width), rows, width, rowsPerTile(4 * width)}
	k.pool.run(&k.swiglu, tilesOf(rows, k.swiglu.per))
}

type swigluBackTask[T Float] struct {
	ops              *rowOps[T]
	dx, dy, x        []T
	rows, width, per int
}

func (t *swigluBackTask[T]) tile(i int, _ *worker) {
	lo, hi := span(i, t.rows, t.per)
	n := t.width
	for r := lo; r < hi; r++ {
		x, dx := t.x[2*r*n:2*(r+1)*n], t.dx[2*r*n:2*(r+1)*n]
		t.ops.swigluBackward(first(dx), first(dx[n:]), first(t.dy[r*n:(r+1)*n]), first(x), first(x[n:]), n)
	}
}

func (k *kernels[T]) SwiGLUBackward(dx, dy, x device.Slice, rows, width int) {
	const name = "SwiGLUBackward"
	k.swigluBack = swigluBackTask[T]{k.ops, k.in(name, "dx", dx, 2*rows*width), k.in(name, "dy", dy, rows*width),
		k.in(name, "x", x, 2*rows*width), rows, width, rowsPerTile(4 * width)}
	k.pool.run(&k.swigluBack, tilesOf(rows, k.swigluBack.per))
}
