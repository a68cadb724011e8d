package model

import (
	"fmt"
	"math"
)

// GPTConfig is the shape of a GPT.
type GPTConfig struct {
	// Layers are the transformer blocks; the model has two layers more, "embed" and "head".
	Layers int
	// Width of the residual stream; Heads divide it.
	Width, Heads int
	// Context is the most tokens of a sequence, Vocab the number of different tokens.
	Context, Vocab int
	// Dropout is the probability that an element is dropped after the embedding and at the end of
	// each half of a block; 0 is off.
	Dropout float64
}

// Largest legal values. They keep every product of two of them, and the parameter count, in an int.
const (
	maxLayers  = 1 << 14
	maxWidth   = 1 << 20
	maxContext = 1 << 24
	maxVocab   = 1 << 24
)

// initStd is the standard deviation of fresh matrices: the 0.02 of Radford et al. 2019 at their
// width of 768, and at other widths in proportion to 1/sqrt(width), so that what a matrix puts out
// starts at the same size. A small model learns much faster so than with 0.02 at every width.
func (c GPTConfig) initStd() float64 { return 0.02 * math.Sqrt(768/float64(c.Width)) }

// GPT is the decoder of Radford et al. 2019: token and position embedding, pre-norm blocks of causal
// attention and a GELU MLP, a final layer norm, and logits through the transposed token embedding.
//
// Its layers are "embed", "block0" ... "block<Layers-1>", "head". Between layers runs the residual
// stream, [rows, context, width]. Matrices start as normal(0, std) with std = 0.02 sqrt(768/width), those that write to
// the residual stream as normal(0, std/sqrt(2 layers)); biases start as 0 and gains as 1. Weight decay applies
// to all matrices, the embeddings included.
func GPT(c GPTConfig) (*Model, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	layers := []Layer{{Name: "embed", Segments: []Segment{newEmbedding(c)}}}
	for i := range c.Layers {
		name := fmt.Sprintf("block%d", i)
		layers = append(layers, Layer{Name: name, Segments: []Segment{
			newAttentionInput(c, name), attentionCore{c}, newAttentionOutput(c, name), newMLP(c, name)}})
	}
	layers = append(layers, Layer{Name: "head", Segments: []Segment{newLogits(c), crossEntropy{c.Vocab}}})
	return New("gpt", c.Context, c.Vocab, layers)
}

func (c GPTConfig) check() error {
	for _, f := range []struct {
		key        string
		given, max int
	}{
		{"layers", c.Layers, maxLayers},
		{"width", c.Width, maxWidth},
		{"heads", c.Heads, maxWidth},
		{"context", c.Context, maxContext},
		{"vocab", c.Vocab, maxVocab},
	} {
		if f.given < 1 || f.given > f.max {
			return fmt.Errorf("model.%s: %d is not legal; it must be from 1 to %d", f.key, f.given, f.max)
		}
	}
	if c.Width%c.Heads != 0 {
		return fmt.Errorf("model.heads: %d heads do not divide model.width %d; nearest legal heads: %s; nearest legal width for %d heads: %s",
			c.Heads, c.Width, nearest(c.Heads, c.Width, func(h int) bool { return c.Width%h == 0 }),
			c.Heads, nearest(c.Width, c.Width+c.Heads, func(w int) bool { return w%c.Heads == 0 }))
	}
	if !(c.Dropout >= 0 && c.Dropout < 1) {
		return fmt.Errorf("model.dropout: %v is not legal; it must be at least 0 and less than 1", c.Dropout)
	}
	return nil
}

// nearest names the legal values next to v: the largest below it, from 1, and the smallest above it, up to most.
func nearest(v, most int, legal func(int) bool) string {
	below, above := min(v-1, most), v+1
	for below >= 1 && !legal(below) {
		below--
	}
	for above <= most && !legal(above) {
		above++
	}
	switch {
	case below < 1:
		return fmt.Sprint(above)
	case above > most:
		return fmt.Sprint(below)
	}
	return fmt.Sprintf("%d or %d", below, above)
}

// matrix is a weight [out, in] that starts as normal(0, std).
func matrix(name string, out, in int, std float64) Param {
	return Param{Name: name, Shape: []int{out, in}, Init: Init{Kind: Normal, Std: std}, Decay: true}
}

// vector is a gain or bias [n].
func vector(name string, n int, kind InitKind) Param {
	return Param{Name: name, Shape: []int{n}, Init: Init{Kind: kind}}
}

// residualStd is the initial deviation of a matrix whose output is added to the residual stream,
// which 2 layers of them do.
func (c GPTConfig) residualStd() float64 { return c.initStd() / math.Sqrt(2*float64(c.Layers)) }

// stream is the port of the residual stream, [rows, context, width].
func (c GPTConfig) stream() Port { return Port{Name: "residual", PerToken: c.Width} }

// tokenTable is the token embedding, which the head uses for its logits too.
func (c GPTConfig) tokenTable() Param { return matrix("embed.tokens", c.Vocab, c.Width, c.initStd()) }
