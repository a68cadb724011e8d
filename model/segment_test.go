package model_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/model/check"
)

// TestSegments checks every segment of every kind of model, with and without dropout, on full, short and single rows.
func TestSegments(t *testing.T) {
	for _, c := range []struct {
		kind    string
		width   int
		dropout float64
	}{{"gpt", 6, 0}, {"gpt", 6, 0.25}, {"llama", 8, 0}, {"llama", 8, 0.25}} {
		m, err := model.Build(c.kind, model.Config{Layers: 1, Width: c.width, Heads: 2, Context: 5, Vocab: 7, Dropout: c.dropout})
		if err != nil {
			t.Fatal(err)
		}
		for li, l := range m.Layers {
			for _, s := range l.Segments {
				for _, o := range []check.Options{
					{Rows: 3, Context: 5, Vocab: m.Vocab, Layer: li, Seed: 1},
					{Rows: 2, Context: 4, Vocab: m.Vocab, Layer: li, Seed: 2},
					{Rows: 1, Context: 1, Vocab: m.Vocab, Layer: li, Seed: 3},
				} {
					t.Run(fmt.Sprintf("%s/dropout %g/%s/%s/%dx%d", c.kind, c.dropout, l.Name, s.Spec().Name, o.Rows, o.Context), func(t *testing.T) {
						if err := check.Segment(s, o); err != nil {
							t.Error(err)
						}
					})
				}
			}
		}
	}
}

// TestKept is what a micro-batch costs in memory between forward and backward, in elements a token
// and width. A change here changes the largest model that fits.
func TestKept(t *testing.T) {
	const width, heads = 64, 4
	m, err := model.GPT(model.GPTConfig{Layers: 1, Width: width, Heads: heads, Context: 8, Vocab: 16, Dropout: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	// Residual 4 times, qkv 3, attended 1, hidden 4; statistics of two norms, and lse of every head.
	if got, want := kept(m.Layers[1]), 12*width+2*2+heads; got != want {
		t.Errorf("a block keeps %d elements a token, want %d", got, want)
	}
}

func kept(l model.Layer) int {
	n := 0
	for _, s := range l.Segments {
		for _, p := range slices.Concat(s.Spec().Out, s.Spec().Saved) {
			n += p.Len(1, 1)
		}
	}
	return n
}
