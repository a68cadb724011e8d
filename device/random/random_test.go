package random

import (
	"math"
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

// The known answers that the authors of Philox publish with Random123.
func TestBlockKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		key, hi, lo uint64
		want        [4]uint32
	}{
		{0, 0, 0, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{math.MaxUint64, math.MaxUint64, math.MaxUint64, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := Block(c.key, c.hi, c.lo); got != c.want {
			t.Errorf("Block(%#x, %#x, %#x) = %#x, want %#x", c.key, c.hi, c.lo, got, c.want)
		}
	}
}

func TestRoundKeysMakeBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key, hi, lo := rapid.Uint64().Draw(t, "key"), rapid.Uint64().Draw(t, "hi"), rapid.Uint64().Draw(t, "lo")
		k := RoundKeys(key)
		c := [4]uint32{uint32(lo), uint32(lo >> 32), uint32(hi), uint32(hi >> 32)}
		for r := range 10 {
			p, q := uint64(c[0])*0xD2511F53, uint64(c[2])*0xCD9E8D57
			c = [4]uint32{uint32(q>>32) ^ c[1] ^ k[2*r], uint32(q), uint32(p>>32) ^ c[3] ^ k[2*r+1], uint32(p)}
		}
		if want := Block(key, hi, lo); c != want {
			t.Fatalf("%#x, want %#x", c, want)
		}
	})
}

// Published hashes of weights depend on these.
func TestKeyAndStringAreFrozen(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uint64
	}{
		{"Key()", Key(), 0xe220a8397b1dcdaf},
		{"Key(0)", Key(0), 0x6f463ce014309db0},
		{"Key(1,2,3)", Key(1, 2, 3), 0x4f0a062519a85cb5},
		{`String("")`, String(""), 0xf52a15e9a9b5e89b},
		{`String("h0.attention.qkv")`, String("h0.attention.qkv"), 0xfe51bdac4b94bc92},
	} {
		if c.got != c.want {
			t.Errorf("%s = %#x, want %#x", c.name, c.got, c.want)
		}
	}
	if got, want := Normal(1, 2), 0.5744272979441066; got != want {
		t.Errorf("Normal(1, 2) = %v, want %v", got, want)
	}
	if got, want := Uniform(1, 2), 0.5565002330689228; got != want {
		t.Errorf("Uniform(1, 2) = %v, want %v", got, want)
	}
}

func TestKeyOrderAndNumberMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Uint64Range(0, 3), 0, 4).Draw(t, "a")
		b := rapid.SliceOfN(rapid.Uint64Range(0, 3), 0, 4).Draw(t, "b")
		same := len(a) == len(b)
		for i := 0; same && i < len(a); i++ {
			same = a[i] == b[i]
		}
		if (Key(a...) == Key(b...)) != same {
			t.Fatalf("Key(%v) = %#x, Key(%v) = %#x", a, Key(a...), b, Key(b...))
		}
	})
}

// A changed bit of any input changes about half of the bits of the block.
func TestBlockAvalanche(t *testing.T) {
	for _, flip := range []struct {
		name        string
		key, hi, lo uint64
	}{{"key", 1 << 40, 0, 0}, {"hi", 0, 1, 0}, {"lo", 0, 0, 1 << 63}} {
		changed := 0
		const n = 1000
		for i := range uint64(n) {
			a, b := Block(7, 9, i), Block(7^flip.key, 9^flip.hi, i^flip.lo)
			for j := range a {
				changed += bits.OnesCount32(a[j] ^ b[j])
			}
		}
		if share := float64(changed) / (128 * n); math.Abs(share-0.5) > 0.01 {
			t.Errorf("%s: %.3f of the bits change, want 0.5", flip.name, share)
		}
	}
}

func TestMoments(t *testing.T) {
	const n = 200_000
	var u, uu, z, zz float64
	for i := range uint64(n) {
		x, y := Uniform(3, i), Normal(3, i)
		if x < 0 || x >= 1 {
			t.Fatalf("Uniform(3, %d) = %v", i, x)
		}
		u, uu, z, zz = u+x, uu+x*x, z+y, zz+y*y
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"mean of Uniform", u / n, 0.5}, {"square of Uniform", uu / n, 1.0 / 3},
		{"mean of Normal", z / n, 0}, {"variance of Normal", zz / n, 1},
	} {
		if math.Abs(c.got-c.want) > 0.01 {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
}

func BenchmarkBlock(b *testing.B) {
	b.SetBytes(16)
	var s uint32
	for i := range uint64(b.N) {
		s += Block(1, 2, i)[0]
	}
	sink = s
}

var sink uint32
