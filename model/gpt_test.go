package model_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-train/troupe/model"
)

func TestGPTRefuses(t *testing.T) {
	good := model.GPTConfig{Layers: 2, Width: 384, Heads: 6, Context: 8, Vocab: 10}
	for _, c := range []struct {
		name   string
		change func(*model.GPTConfig)
		want   string
	}{
		{"layers", func(c *model.GPTConfig) { c.Layers = 0 }, "model.layers: 0 is not legal; it must be from 1 to"},
		{"width", func(c *model.GPTConfig) { c.Width = -3 }, "model.width: -3 is not legal"},
		{"heads", func(c *model.GPTConfig) { c.Heads = 0 }, "model.heads: 0 is not legal"},
		{"context", func(c *model.GPTConfig) { c.Context = 1 << 40 }, "model.context: 1099511627776 is not legal"},
		{"vocab", func(c *model.GPTConfig) { c.Vocab = 0 }, "model.vocab: 0 is not legal"},
		{"between", func(c *model.GPTConfig) { c.Heads = 5 }, "5 heads do not divide model.width 384; nearest legal heads: 4 or 6; nearest legal width for 5 heads: 380 or 385"},
		{"more heads than width", func(c *model.GPTConfig) { c.Heads = 500 }, "nearest legal heads: 384; nearest legal width for 500 heads: 500"},
		{"dropout", func(c *model.GPTConfig) { c.Dropout = 1 }, "model.dropout: 1 is not legal"},
		{"dropout not a number", func(c *model.GPTConfig) { c.Dropout = math.NaN() }, "model.dropout: NaN is not legal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := good
			c.change(&g)
			if _, err := model.GPT(g); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestRegistry(t *testing.T) {
	c := model.Config{Layers: 3, Width: 8, Heads: 2, Context: 4, Vocab: 5, Dropout: 0.5}
	m, err := model.Build("gpt", c)
	if err != nil || m.Kind != "gpt" || len(m.Layers) != 5 || m.Context != 4 || m.Vocab != 5 {
		t.Fatalf("built %+v, %v", m, err)
	}
	if _, err := model.Build("gtp", c); err == nil || err.Error() != `model.kind: "gtp" is not known; legal: gpt, llama` {
		t.Errorf("error %v", err)
	}
	for _, k := range model.Kinds() {
		if m, err := model.Build(k, c); err != nil || m.Kind != k {
			t.Errorf("kind %q builds %v, %v", k, m, err)
		}
	}
}

// The names, shapes and order are a contract: checkpoints and weights_sha256 depend on them.
func TestGPTParameters(t *testing.T) {
	m, err := model.GPT(model.GPTConfig{Layers: 2, Width: 12, Heads: 2, Context: 4, Vocab: 5})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range m.Params() {
		got = append(got, fmt.Sprintf("%s %v init %d %.4g decay %v", p.Name, p.Shape, p.Init.Kind, p.Init.Std, p.Decay))
	}
	block := `
block0.attention.norm.gain [12] init 1 0 decay false
block0.attention.norm.bias [12] init 0 0 decay false
block0.attention.qkv.weight [36 12] init 2 0.16 decay true
block0.attention.qkv.bias [36] init 0 0 decay false
block0.attention.projection.weight [12 12] init 2 0.08 decay true
block0.attention.projection.bias [12] init 0 0 decay false
block0.mlp.norm.gain [12] init 1 0 decay false
block0.mlp.norm.bias [12] init 0 0 decay false
block0.mlp.fc.weight [48 12] init 2 0.16 decay true
block0.mlp.fc.bias [48] init 0 0 decay false
block0.mlp.projection.weight [12 48] init 2 0.08 decay true
block0.mlp.projection.bias [12] init 0 0 decay false`
	want := `embed.tokens [5 12] init 2 0.16 decay true
embed.positions [4 12] init 2 0.16 decay true` + block + strings.ReplaceAll(block, "block0", "block1") + `
head.norm.gain [12] init 1 0 decay false
head.norm.bias [12] init 0 0 decay false`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("parameters:\n%s\nwant:\n%s", s, want)
	}
}

// TestGPTCount compares the number of parameters with the formula of the paper's shapes.
func TestGPTCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		heads := rapid.IntRange(1, 4).Draw(t, "heads")
		c := model.GPTConfig{
			Layers: rapid.IntRange(1, 5).Draw(t, "layers"), Width: heads * rapid.IntRange(1, 9).Draw(t, "head size"), Heads: heads,
			Context: rapid.IntRange(1, 20).Draw(t, "context"), Vocab: rapid.IntRange(1, 40).Draw(t, "vocab"),
		}
		m, err := model.GPT(c)
		if err != nil {
			t.Fatal(err)
		}
		w := c.Width
		if want := (c.Vocab+c.Context)*w + c.Layers*(12*w*w+13*w) + 2*w; m.Len() != want {
			t.Fatalf("%+v has %d parameters, want %d", c, m.Len(), want)
		}
		if b := m.Buckets()[0]; b.Name != "embed.tokens" || len(b.Uses) != 2 || b.Uses[0] != 0 || b.Uses[1] != c.Layers+1 {
			t.Fatalf("bucket 0 is %+v; the token embedding is used by the first and the last layer", b)
		}
	})
}

// TestGPTCost holds the matrix products of a training step to the well-known 6 operations for each
// weight and token, plus attention.
func TestGPTCost(t *testing.T) {
	c := model.GPTConfig{Layers: 12, Width: 768, Heads: 12, Context: 1024, Vocab: 50257}
	m, err := model.GPT(c)
	if err != nil {
		t.Fatal(err)
	}
	var total model.Cost
	for l := range m.Layers {
		total = total.Add(m.LayerCost(l, 2, c.Context))
	}
	tokens := 2 * float64(c.Context)
	w := float64(c.Width)
	weights := 12*float64(c.Layers)*w*w + w*float64(c.Vocab)
	// Seven products of tokens x tokens/2 x width in each block, forward and backward.
	attention := 7 * float64(c.Layers) * float64(c.Context) * w
	want := tokens * (6*weights + attention)
	if r := total.Total() / want; r < 1 || r > 1.02 {
		t.Errorf("a step costs %.4g operations, %.3f of the %.4g of its products", total.Total(), r, want)
	}
	if total.Bytes <= 0 {
		t.Errorf("it moves %v bytes", total.Bytes)
	}
	for l, layer := range m.Layers {
		a, b := m.LayerCost(l, 1, c.Context), m.LayerCost(l, 3, c.Context)
		if math.Abs(b.Total()-3*a.Total()) > 1e-9*b.Total() {
			t.Errorf("layer %s: 3 rows cost %g, one row %g", layer.Name, b.Total(), a.Total())
		}
	}
}
