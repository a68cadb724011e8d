package cpu

import (
	"fmt"
	"math"

	"github.com/troupe-train/troupe/device"
)

// ropeBase is the 10000 of Su et al. 2021, section 3.4.
const ropeBase = 10000

// angles are the cosines and sines of RoPE for heads of dim elements, [positions, dim/2]. They are made
// once and grow with the longest sequence; an element depends on its position and dim alone.
type angles[T Float] struct {
	dim                 int
	cos, sin, minusSine []T
}

func (a *angles[T]) reach(positions, dim int) {
	if a.dim != dim {
		*a = angles[T]{dim: dim}
	}
	half := dim / 2
	for t := len(a.cos) / half; t < positions; t++ {
		for i := range half {
			sin, cos := math.Sincos(float64(t) * math.Pow(ropeBase, -float64(2*i)/float64(dim)))
			a.cos, a.sin, a.minusSine = append(a.cos, T(cos)), append(a.sin, T(sin)), append(a.minusSine, T(-sin))
		}
	}
}

type ropeTask[T Float] struct {
	ops      *rowOps[T]
	y, x     operand[T]
	cos, sin []T
	shape    device.AttentionShape
	per      int
}

func (t *ropeTask[T]) tile(i int, w *worker) {
	lo, hi := span(i, t.shape.Batch*t.shape.Tokens, t.per)
	width, half := t.shape.Heads*t.shape.HeadDim, t.shape.HeadDim/2
	s := bandsOf(w, t.ops, 2, 3*width, &t.y, &t.x)
	for r := lo; r < hi; r++ {
		y, x := t.y.room(&s, 0, 3*r*width, 3*(r+1)*width), t.x.read(&s, 1, 3*r*width, 3*(r+1)*width)
		at := r % t.shape.Tokens * half
		cos, sin := first(t.cos[at:]), first(t.sin[at:])
		for h := 0; h < 2*width; h += 2 * half {
			t.ops.turn(first(y[h:]), first(y[h+half:]), first(x[h:]), first(x[h+half:]), cos, sin, half)
		}
		if first(y) != first(x) {
			copy(y[2*width:], x[2*width:])
		}
		t.y.put(t.ops, y, 3*r*width)
	}
}

func (k *kernels[T]) turn(name string, y, x device.Slice, s device.AttentionShape, back bool) {
	if s.HeadDim < 2 || s.HeadDim%2 != 0 {
		panic(fmt.Sprintf("cpu: %s: heads of %d elements; they must be even and not 0", name, s.HeadDim))
	}
	k.angles.reach(s.Tokens, s.HeadDim)
	sin := k.angles.sin
	if back {
		sin = k.angles.minusSine
	}
	width := 3 * s.Heads * s.HeadDim
	n := s.Batch * s.Tokens
	k.rope = ropeTask[T]{k.ops, k.of(name, "y", y, n*width), k.of(name, "x", x, n*width), k.angles.cos, sin, s, rowsPerTile(width)}
	k.pool.run(&k.rope, tilesOf(n, k.rope.per))
}

func (k *kernels[T]) RoPE(y, x device.Slice, s device.AttentionShape) { k.turn("RoPE", y, x, s, false) }

func (k *kernels[T]) RoPEBackward(dx, dy device.Slice, s device.AttentionShape) {
	k.turn("RoPEBackward", dx, dy, s, true)
}
