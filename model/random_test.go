package model_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-train/troupe/model"
)

// A parameter is the same bits however it is cut, which is what makes shards independent of the layout.
func TestInitializeInPieces(t *testing.T) {
	p := model.Param{Name: "w", Shape: []int{30, 10}, Init: model.Init{Kind: model.Normal, Std: 0.02}}
	whole := make([]float32, p.Len())
	model.Initialize(p, 7, whole, 0)
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(0, p.Len()).Draw(t, "from")
		piece := make([]float32, rapid.IntRange(0, p.Len()-from).Draw(t, "len"))
		model.Initialize(p, 7, piece, from)
		if !slices.Equal(piece, whole[from:from+len(piece)]) {
			t.Fatalf("elements [%d, %d) differ from those of the whole", from, from+len(piece))
		}
	})
}

func TestInitialize(t *testing.T) {
	draw := func(name string, seed uint64, init model.Init) []float32 {
		dst := make([]float32, 20000)
		model.Initialize(model.Param{Name: name, Shape: []int{len(dst)}, Init: init}, seed, dst, 0)
		return dst
	}
	normal := model.Init{Kind: model.Normal, Std: 0.02}
	w := draw("w", 1, normal)
	var sum, squares float64
	for _, v := range w {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(w))
	// Five standard errors of the mean and of the deviation.
	if mean := sum / n; math.Abs(mean) > 5*0.02/math.Sqrt(n) {
		t.Errorf("mean %g", mean)
	}
	if std := math.Sqrt(squares / n); math.Abs(std-0.02) > 5*0.02/math.Sqrt(2*n) {
		t.Errorf("standard deviation %g, want 0.02", std)
	}
	if slices.Equal(w, draw("v", 1, normal)) || slices.Equal(w, draw("w", 2, normal)) {
		t.Error("another name or seed gives the same numbers")
	}
	if ones := draw("w", 1, model.Init{Kind: model.Ones}); slices.Min(ones) != 1 || slices.Max(ones) != 1 {
		t.Error("Ones are not all 1")
	}
	dst := []float32{3, 4}
	if model.Initialize(model.Param{Name: "b", Shape: []int{2}}, 1, dst, 0); dst[0] != 0 || dst[1] != 0 {
		t.Errorf("Zeros are %v", dst)
	}
}

func TestDropoutKeysDiffer(t *testing.T) {
	seen := map[uint64]string{}
	for seed := range uint64(4) {
		for step := range int64(10) {
			for layer := range 10 {
				for site := range uint64(3) {
					k := model.DropoutKey(seed, step, layer, site)
					if s, ok := seen[k]; ok {
						t.Fatalf("seed %d step %d layer %d site %d has the key of %s", seed, step, layer, site, s)
					}
					seen[k] = "another one"
				}
			}
		}
	}
}
