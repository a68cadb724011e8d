package data

import (
	"math/bits"

	"github.com/troupe-train/troupe/device/random"
)

// Sample is the number, counted over the whole run, of row row of the batch of step step.
func Sample(step int64, batch, row int) int64 { return step*int64(batch) + int64(row) }

// Sampler says where in a text the training samples lie. It is a value without state.
//
// In every epoch the text is cut into windows that stand side by side: window w has the context
// inputs from phase + w*context on and, one token further, as many targets, so no token is a target
// twice in an epoch. The phase is drawn anew for every epoch, so that the cuts differ from one
// epoch to the next; what lies before the first and behind the last window, together fewer than
// 2*context tokens, sits the epoch out. The order of the windows is a keyed permutation.
type Sampler struct {
	seed    uint64
	context int64
	windows int64
	phases  int64 // the phase is in [0, phases)
	half    uint  // the permutation works on 2*half bits
}

// NewSampler cuts a text of tokens tokens, at least context+1, into windows of context+1.
func NewSampler(seed uint64, tokens int64, context int) Sampler {
	c := int64(context)
	if c < 1 || tokens < c+1 {
		panic("data: a sampler needs a context of at least 1 and context+1 tokens")
	}
	s := Sampler{seed: seed, context: c}
	// The last window of the largest phase, context-1, must end inside the text:
	// context-1 + windows*context + 1 <= tokens. A text that is too short for that has one window.
	s.windows = max(1, (tokens-c)/c)
	s.phases = min(c, tokens-s.windows*c)
	s.half = uint(bits.Len64(uint64(s.windows-1))+1) / 2
	return s
}

// Windows is the number of samples of an epoch.
func (s Sampler) Windows() int64 { return s.windows }

// At is the offset of the first token of sample i, i >= 0.
func (s Sampler) At(i int64) int64 {
	if i < 0 {
		panic("data: a sample has a negative number")
	}
	key := random.Key(s.seed, random.String("data.sampler"), uint64(i/s.windows))
	phase, _ := bits.Mul64(random.Key(key, 1), uint64(s.phases))
	return int64(phase) + s.permute(key, i%s.windows)*s.context
}

// feistelRounds is enough for an order without visible pattern even on a handful of windows.
const feistelRounds = 8

// permute is a bijection of [0, windows): a Feistel network on 2*half bits, the smallest even
// number that holds windows, applied again while the result is outside (cycle walking, Black and
// Rogaway 2002, section 3). The domain is less than 4*windows, so that takes fewer than 4 rounds on
// average.
func (s Sampler) permute(key uint64, i int64) int64 {
	mask := uint64(1)<<s.half - 1
	for {
		l, r := uint64(i)>>s.half, uint64(i)&mask
		for round := range uint64(feistelRounds) {
			f := random.Block(key, round, r)
			l, r = r, l^(uint64(f[0])|uint64(f[1])<<32)&mask
		}
		if i = int64(l<<s.half | r); i < s.windows {
			return i
		}
	}
}

// spread gives the first n of count things, for every n, so that they lie evenly over [0, count):
// thing j is j*stride mod count, where stride is the number nearest to count divided by the golden
// ratio that has no factor in common with count. So each j below count gives another thing.
func spread(j, count int64) int64 {
	const golden = 0.6180339887498949
	stride := max(1, int64(golden*float64(count)))
	for gcd(stride, count) != 1 {
		stride++
	}
	hi, lo := bits.Mul64(uint64(j), uint64(stride))
	_, rest := bits.Div64(hi, lo, uint64(count))
	return int64(rest)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
