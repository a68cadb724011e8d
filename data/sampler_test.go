package data

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Every window of an epoch is visited once, the windows stand side by side, and all lie in the text.
func TestEveryWindowOncePerEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		context := rapid.IntRange(1, 40).Draw(t, "context")
		tokens := rapid.Int64Range(int64(context)+1, 3000).Draw(t, "tokens")
		s := NewSampler(rapid.Uint64().Draw(t, "seed"), tokens, context)
		epoch := rapid.Int64Range(0, 1<<40).Draw(t, "epoch")
		if s.Windows() < 1 || (s.Windows()+2)*int64(context) < tokens {
			t.Fatalf("%d windows of %d in %d tokens", s.Windows(), context, tokens)
		}
		seen := map[int64]bool{}
		lowest := int64(math.MaxInt64)
		for i := range s.Windows() {
			at := s.At(epoch*s.Windows() + i)
			if at < 0 || at+int64(context)+1 > tokens {
				t.Fatalf("sample %d is [%d:%d] of %d tokens", i, at, at+int64(context)+1, tokens)
			}
			seen[at] = true
			lowest = min(lowest, at)
		}
		for w := range s.Windows() {
			if !seen[lowest+w*int64(context)] {
				t.Fatalf("no sample at %d, window %d of %d", lowest+w*int64(context), w, s.Windows())
			}
		}
	})
}

// A run of any length and any batch asks for the same samples: the number alone decides.
func TestSampleCountsOverTheRun(t *testing.T) {
	next := int64(0)
	for step := range int64(7) {
		for row := range 5 {
			if got := Sample(step, 5, row); got != next {
				t.Fatalf("step %d row %d is sample %d, want %d", step, row, got, next)
			}
			next++
		}
	}
}

// The order is not the order of the text, differs between epochs and seeds, and phases reach over
// the context.
func TestOrderIsMixed(t *testing.T) {
	const context, windows = 32, 500
	s := NewSampler(1, context*(windows+1), context)
	if s.Windows() != windows {
		t.Fatalf("%d windows, want %d", s.Windows(), windows)
	}
	same := func(a, b func(i int64) int64) (n int) {
		for i := range int64(windows) {
			if a(i) == b(i) {
				n++
			}
		}
		return n
	}
	window := func(s Sampler, epoch int64) func(int64) int64 {
		return func(i int64) int64 { return s.At(epoch*windows+i) / context }
	}
	// A random permutation has one fixed point on average; 9 or more have a chance under 2e-6.
	identity := func(i int64) int64 { return i }
	if n := same(window(s, 0), identity); n > 8 {
		t.Errorf("%d of %d samples stand where they are in the text", n, windows)
	}
	if n := same(window(s, 0), window(s, 1)); n > 8 {
		t.Errorf("%d of %d samples are equal in two epochs", n, windows)
	}
	if n := same(window(s, 0), window(NewSampler(2, context*(windows+1), context), 0)); n > 8 {
		t.Errorf("%d of %d samples are equal for two seeds", n, windows)
	}
	phases := map[int64]bool{}
	for epoch := range int64(400) {
		phases[s.At(epoch*windows)%context] = true
	}
	if len(phases) < context-2 {
		t.Errorf("400 epochs have only %d phases of %d", len(phases), context)
	}
}

// Small permutations are close to uniform: chi-square over all 24 orders of 4 windows.
func TestPermutationIsUniform(t *testing.T) {
	const context, windows, epochs = 1, 4, 24000
	count := map[[windows]int64]float64{}
	s := Sampler{context: context, windows: windows, phases: 1, half: 1}
	for epoch := range int64(epochs) {
		var order [windows]int64
		for i := range order {
			order[i] = s.At(epoch*windows + int64(i))
		}
		count[order]++
	}
	chi := 0.0
	for _, n := range count {
		chi += (n - epochs/24) * (n - epochs/24) / (epochs / 24)
	}
	chi += float64(24-len(count)) * epochs / 24
	// 23 degrees of freedom: 1e-4 lies at 57.
	t.Logf("chi-square %.1f over %d orders", chi, len(count))
	if len(count) != 24 || chi > 120 {
		t.Errorf("chi-square %.1f over %d orders", chi, len(count))
	}
}

// Samples are frozen: resumed runs and published hashes depend on them.
func TestSamplesAreFrozen(t *testing.T) {
	s := NewSampler(1, 1000, 10)
	var got []int64
	for _, i := range []int64{0, 1, 2, 98, 99, 100, 1 << 40} {
		got = append(got, s.At(i))
	}
	want := []int64{328, 8, 808, 658, 863, 483, 301}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("samples are at %v, want %v", got, want)
		}
	}
}

func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Int64Range(1, 2000).Draw(t, "count")
		n := rapid.Int64Range(1, count).Draw(t, "n")
		seen := map[int64]bool{}
		buckets := map[int64]int{}
		for j := range n {
			at := spread(j, count)
			if at < 0 || at >= count || seen[at] {
				t.Fatalf("thing %d of %d is %d: outside or twice", j, count, at)
			}
			seen[at] = true
			buckets[at*4/count]++
		}
		// The first n lie evenly: no quarter has far more than its share.
		for q, c := range buckets {
			if float64(c) > float64(n)/4+20 {
				t.Fatalf("quarter %d holds %d of the first %d of %d", q, c, n, count)
			}
		}
	})
	for _, count := range []int64{1, math.MaxInt64 - 1} {
		if at := spread(count-1, count); at < 0 || at >= count {
			t.Errorf("spread(%d, %d) = %d", count-1, count, at)
		}
	}
}

func BenchmarkSamplerAt(b *testing.B) {
	s := NewSampler(1, 90e6, 256)
	for i := range b.N {
		s.At(int64(i))
	}
}
