package main

import (
	"testing"

	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/model/check"
)

func TestAdapter(t *testing.T) {
	a := adapter{"adapter0", model.Port{Name: "residual", PerToken: 6}, 3}
	if err := check.Segment(a, check.Options{Rows: 2, Context: 4}); err != nil {
		t.Error(err)
	}
}

func TestWithAdapters(t *testing.T) {
	gpt, err := model.GPT(model.GPTConfig{Layers: 2, Width: 8, Heads: 2, Context: 4, Vocab: 5})
	if err != nil {
		t.Fatal(err)
	}
	m, err := withAdapters(gpt, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.Len()-gpt.Len(), 2*(2*3*8+3+8); got != want || len(m.Layers) != 6 {
		t.Errorf("%d parameters and %d layers, want %d more than the GPT's and 6", m.Len(), len(m.Layers), want)
	}
}
