package cpu

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/random"
)

// refRound is the nearest of the bfloat16, by comparison of distances in exact arithmetic: the two neighbours of v among the
// multiples of a unit in the last place, 2^-133 at the least, and the even one of two.
func refRound(v float32) BFloat16 {
	if v != v || math.IsInf(float64(v), 0) {
		return BFloat16(math.Float32bits(v) >> 16)
	}
	x := math.Abs(float64(v))
	_, exponent := math.Frexp(x)
	ulp := math.Ldexp(1, max(exponent-8, -133))
	n := big.NewFloat(x / ulp) // exact: a power of two
	whole, _ := n.Int(nil)
	rest := new(big.Float).Sub(n, new(big.Float).SetInt(whole))
	up := rest.Cmp(big.NewFloat(0.5))
	if up > 0 || up == 0 && whole.Bit(0) == 1 {
		whole.Add(whole, big.NewInt(1))
	}
	f, _ := new(big.Float).SetInt(whole).Float64()
	return BFloat16(math.Float32bits(float32(math.Copysign(f*ulp, float64(v)))) >> 16) // over the largest it is infinite
}

// All patterns are read as the numbers that they are, and come back; what lies between two is rounded as in IEEE arithmetic.
func TestBFloat16Conversions(t *testing.T) {
	var near []float32
	for u := range uint32(1 << 16) {
		// The tie above each, the numbers next to the tie, and one anywhere.
		for _, low := range []uint32{1, 0x7fff, 0x8000, 0x8001, 0xffff, random.Block(1, 2, uint64(u))[0] & 0xffff} {
			near = append(near, math.Float32frombits(u<<16|low))
		}
	}
	for _, v := range near {
		got, want := Round(v), refRound(v)
		if v != v {
			if f := got.Float32(); f == f || math.Signbit(float64(f)) != math.Signbit(float64(v)) {
				t.Fatalf("NaN %#x becomes %#x", math.Float32bits(v), got)
			}
		} else if got != want {
			t.Fatalf("%v (%#x) becomes %#x, want %#x", v, math.Float32bits(v), got, want)
		}
	}
	for _, level := range Levels() {
		for _, more := range []int{0, 1, 15} { // not a multiple of sixteen
			r := newRigAt(t, device.F32, level, 2)
			n := 1<<16 - more
			half, wide, back := r.allocOf(device.BF16, n), r.alloc(n), r.allocOf(device.BF16, n)
			for i := range n {
				BFloat16s(half)[i] = BFloat16(i)
			}
			r.do(func(k device.Kernels) { k.Convert(wide, half); k.Convert(back, wide) })
			for i, v := range Float32s(wide) {
				if math.Float32bits(v) != uint32(i)<<16 {
					t.Fatalf("%s: %#x is read as %#x", level, i, math.Float32bits(v))
				}
				if got := BFloat16s(back)[i]; got != BFloat16(i) && (v == v || got != BFloat16(i)|0x40) {
					t.Fatalf("%s: %#x comes back as %#x", level, i, got)
				}
			}
			in, out := r.alloc(len(near)-more), r.allocOf(device.BF16, len(near)-more)
			copy(Float32s(in), near)
			r.do(func(k device.Kernels) { k.Convert(out, in) })
			for i, got := range BFloat16s(out) {
				if want := Round(near[i]); got != want {
					t.Fatalf("%s: %#x becomes %#x, want %#x", level, math.Float32bits(near[i]), got, want)
				}
			}
		}
	}
}

// What a kernel stores in bfloat16 is what it stores in float32 of the same inputs, rounded. Only products sum in another order.
func TestBFloat16IsFloat32RoundedOnce(t *testing.T) {
	for _, level := range Levels() {
		r := newRigAt(t, device.F32, level, 2)
		r.rounds = true
		want := everything(r)
		for i, s := range everything(newRigAt(t, device.BF16, level, 2)) {
			if s.kernel == "MatMul" {
				continue
			}
			w := bitsOf(want[i].Slice)
			if s.Type == device.BF16 {
				for j, v := range Float32s(want[i].Slice) {
					w[j] = uint64(Round(v))
				}
			}
			if !slices.Equal(bitsOf(s.Slice), w) {
				t.Errorf("%s: output %d (%s) is not the one in float32, rounded", level, i, s.kernel)
			}
		}
	}
}

// The product of pairs, in the order and with the flush to zero of VDPBF16PS, by exact arithmetic in float64: the product of
// two bfloat16 has 16 bits, and its sum with a float32 is rounded to float32 once.
func TestProductOfPairs(t *testing.T) {
	flush := func(v float32) float32 {
		if math.Abs(float64(v)) < 0x1p-126 {
			return float32(math.Copysign(0, float64(v)))
		}
		return v
	}
	fma := func(a, b BFloat16, c float32) float32 {
		x, y := flush(a.Float32()), flush(b.Float32())
		exact := new(big.Float).SetPrec(1000).SetFloat64(float64(x) * float64(y))
		exact.Add(exact, new(big.Float).SetPrec(1000).SetFloat64(float64(c)))
		f, _ := exact.Float32()
		if f == 0 {
			return x*y + c // the sign of 0
		}
		return flush(f)
	}
	for _, level := range Levels()[1:] {
		r := newRigAt(t, device.BF16, level, 1)
		for _, p := range []device.MatMul{
			{M: 3, N: 5, K: 1}, {M: 7, N: 17, K: 2}, {M: 9, N: 50, K: 33}, {M: 9, N: 50, K: 34, TransA: true}, {M: 9, N: 50, K: 35, TransA: true},
			{M: 33, N: 64, K: 40, TransA: true}, {M: 9, N: 50, K: 64, TransB: true}, {M: 2, N: 9, K: 63, TransB: true}, {M: 14, N: 31, K: 128},
			{M: 3, N: 16, K: 64, LDA: 67, LDB: 33}, {M: 5, N: 40, K: 64, LDB: 65, TransB: true},
		} {
			lda, ldb, _ := strides(p)
			ra, rb := p.M, p.K
			if p.TransA {
				ra = p.K
			}
			if p.TransB {
				rb = p.N
			}
			for spread := 4; spread <= 160; spread *= 2 {
				draw := func(n int) device.Slice {
					r.seed++
					s := r.alloc(n)
					for i := range n {
						bits := random.Block(r.seed, 0, uint64(i))
						exponent := 127 - 2*spread/5 + int(bits[1]%uint32(spread))
						BFloat16s(s)[i] = BFloat16(bits[0]&0x807f) | BFloat16(max(0, exponent))<<7
					}
					return s
				}
				a, b, c := draw(ra*lda), draw(rb*ldb), r.stat(p.M*p.N)
				r.do(func(k device.Kernels) { k.MatMul(c, a, b, p) })
				for i := range p.M {
					for j := range p.N {
						at := func(k int) (x, y BFloat16) {
							if k >= p.K {
								return 0, 0
							}
							ia, ib := i*lda+k, k*ldb+j
							if p.TransA {
								ia = k*lda + i
							}
							if p.TransB {
								ib = j*ldb + k
							}
							return BFloat16s(a)[ia], BFloat16s(b)[ib]
						}
						var sum float32
						for k := 0; k < p.K; k += 2 {
							x, y := at(k + 1)
							sum = fma(x, y, sum)
							x, y = at(k)
							sum = fma(x, y, sum)
						}
						if got := Float32s(c)[i*p.N+j]; math.Float32bits(got) != math.Float32bits(sum) {
							t.Fatalf("%s, %+v, exponents over %d: element (%d,%d) is %v, want %v", level, p, spread, i, j, got, sum)
						}
					}
				}
			}
		}
	}
}

// What is not supported is refused, with the types.
func TestTypesThatAreRefused(t *testing.T) {
	r := newRig(t, device.F32, 1)
	f, h := r.alloc(4), r.allocOf(device.BF16, 4)
	double := newRig(t, device.F64, 1)
	d := double.alloc(4)
	for _, c := range []struct {
		what, want string
		r          *rig
		run        func(device.Kernels)
	}{
		{"A and B", "A is f32 and B bf16", r, func(k device.Kernels) { k.MatMul(f, f, h, device.MatMul{M: 2, N: 2, K: 2}) }},
		{"mean", "bf16 where f32 is needed", r, func(k device.Kernels) {
			k.LayerNorm(h, h.Sub(0, 2), f.Sub(0, 2), h, h.Sub(0, 2), h.Sub(0, 2), 2, 2)
		}},
		{"weights", "bf16 where f32 is needed", r, func(k device.Kernels) { k.SGD(h, f, f, f, f, device.SGD{}) }},
		{"norm", "bf16 where f32 is needed", r, func(k device.Kernels) { k.SumSquares(r.allocOf(device.F64, 1), h, 4) }},
		{"a copy", "Copy: dst is 4 of f32, src 4 of bf16", r, func(k device.Kernels) { k.Copy(f, h) }},
		{"f64", "bf16 where f64 is needed", double, func(k device.Kernels) { k.Add(d, d, h) }},
		{"length", "src has 4 elements, must be 3", r, func(k device.Kernels) { k.Convert(h.Sub(0, 3), f) }},
	} {
		if err := c.r.try(c.run); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.what, err, c.want)
		}
	}
}
