package random

import (
	"math"
	"math/bits"
)

// Constants of Philox4x32: the multipliers of a round and the Weyl increments of the key.
const (
	mul0, mul1   = 0xD2511F53, 0xCD9E8D57
	weyl0, weyl1 = 0x9E3779B9, 0xBB67AE85
	rounds       = 10
)

// Counters of Uniform and Normal have different high words, so that one key may serve both.
const (
	uniformDomain = 0
	normalDomain  = 1
)

// Block is Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3",
// section 3.3): a bijection of the 128-bit counter (hi, lo) for every key. The 32-bit words of key
// and counter are taken least significant first.
func Block(key, hi, lo uint64) [4]uint32 {
	c0, c1, c2, c3 := uint32(lo), uint32(lo>>32), uint32(hi), uint32(hi>>32)
	k0, k1 := uint32(key), uint32(key>>32)
	for range rounds {
		p0, p1 := uint64(c0)*mul0, uint64(c2)*mul1
		c0, c1, c2, c3 = uint32(p1>>32)^c1^k0, uint32(p1), uint32(p0>>32)^c3^k1, uint32(p0)
		k0 += weyl0
		k1 += weyl1
	}
	return [4]uint32{c0, c1, c2, c3}
}

// RoundKeys are the two words of the key in each of the ten rounds of Block, for whoever computes
// blocks with vectors.
func RoundKeys(key uint64) (keys [2 * rounds]uint32) {
	k0, k1 := uint32(key), uint32(key>>32)
	for r := range rounds {
		keys[2*r], keys[2*r+1] = k0, k1
		k0 += weyl0
		k1 += weyl1
	}
	return keys
}

// Key mixes parts into one key. The order and the number of the parts matter.
func Key(parts ...uint64) uint64 {
	h := mix(uint64(len(parts)) + golden)
	for _, p := range parts {
		// The rotation keeps equal neighbouring parts from cancelling.
		h = mix(bits.RotateLeft64(h, 23) + golden ^ mix(p+golden))
	}
	return h
}

// String is a stable hash of a name: FNV-1a, then mixed so that names with a common prefix differ
// in all bits.
func String(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return mix(h)
}

// Uniform is the i-th number of key, uniform in [0,1) with 53 random bits.
func Uniform(key, i uint64) float64 {
	b := Block(key, uniformDomain, i)
	return fraction(b[0], b[1])
}

// Normal is the i-th number of key with mean 0 and standard deviation 1 (Box and Muller 1958).
func Normal(key, i uint64) float64 {
	b := Block(key, normalDomain, i)
	// 1-u is in (0,1], so the logarithm is finite.
	r := math.Sqrt(-2 * math.Log(1-fraction(b[0], b[1])))
	return r * math.Cos(2*math.Pi*fraction(b[2], b[3]))
}

func fraction(lo, hi uint32) float64 {
	return float64((uint64(hi)<<32|uint64(lo))>>11) / (1 << 53)
}

const golden = 0x9E3779B97F4A7C15

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood 2014), a bijection of 64 bits.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
