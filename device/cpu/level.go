package cpu

import (
	"fmt"
	"strings"
)

// Level is the set of processor instructions that the float32 kernels use. The float64 kernels are
// portable Go at every level.
//
// The kernels of AVX2, AVX512 and AVX512BF16 give the same bits, those of bfloat16 too (see blockedTask): machines of
// all three can work on one job. Those of Portable give the same bits as they
// do for Copy, Fill, Add, SumRows, Embed, EmbedBackward, Dropout, Sum, SumSquares, AdamW, SGD, RoPE and the
// weight gradients of LayerNorm and RMSNorm; in products, norms and exponentials they round otherwise, because there is
// no fused multiply-add and sums have one lane.
type Level int

const (
	// Best is the highest level that the processor has.
	Best Level = iota
	Portable
	AVX2       // with FMA
	AVX512     // F and DQ
	AVX512BF16 // with VDPBF16PS
)

func (l Level) String() string {
	if l >= 0 && int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

var levelNames = [...]string{"best", "portable", "avx2", "avx512", "avx512bf16"}

// Levels are the levels that this processor has, lowest first.
func Levels() []Level { return append([]Level{Portable}, vectorLevels()...) }

// resolve turns Best into a level, and refuses levels that the processor does not have.
func (l Level) resolve() (Level, error) {
	have := Levels()
	if l == Best {
		return have[len(have)-1], nil
	}
	var names []string
	for _, h := range have {
		if h == l {
			return l, nil
		}
		names = append(names, h.String())
	}
	return 0, fmt.Errorf("cpu: this processor has no kernels of level %s; it has %s", l, strings.Join(names, ", "))
}
