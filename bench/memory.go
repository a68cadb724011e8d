package bench

import (
	"fmt"
	"math"
)

// ErrOptions marks the error of options that are not legal, or ask for more memory than there is.
type ErrOptions struct{ error }

func (e ErrOptions) Unwrap() error { return e.error }

// fits refuses what needs more bytes of memory than there are; have is 0 where nobody knows how many these are, and then only what no
// process can have is refused.
func fits(what string, need float64, have uint64) error {
	who := "there are"
	if have == 0 {
		have, who = math.MaxInt64>>16, "a process can have"
	}
	if need > float64(have) {
		return ErrOptions{fmt.Errorf("%s needs %.1f GB of memory; %s %.1f", what, need/1e9, who, float64(have)/1e9)}
	}
	return nil
}

// size is a number among the options, and what is legal for it.
type size struct {
	name          string
	n, least, top int
}

func checkSizes(sizes ...size) error {
	for _, s := range sizes {
		if s.n < s.least || s.n > s.top {
			return ErrOptions{fmt.Errorf("--%s %d; legal is %d to %d", s.name, s.n, s.least, s.top)}
		}
	}
	return nil
}
