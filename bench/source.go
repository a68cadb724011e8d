package bench

import "github.com/troupe-train/troupe/device/random"

// noise is a source of made-up tokens: what they are does not matter to the time of a step, only
// that they are spread over the vocabulary.
type noise struct{ vocab int }

// Window is a pure function of i.
func (n noise) Window(i int64, dst []int32) {
	for t := 0; t < len(dst); t += 4 {
		for j, v := range random.Block(1, uint64(i), uint64(t)) {
			if t+j < len(dst) {
				dst[t+j] = int32(v % uint32(n.vocab))
			}
		}
	}
}

// Held is that of Window, from the other end.
func (n noise) Held(j int, dst []int32) { n.Window(int64(-1-j), dst) }
