package model

import "fmt"

// LlamaConfig is the shape of a Llama; its fields are those of a GPT. The width of a head, Width/Heads, is even.
type LlamaConfig GPTConfig

// Llama is the decoder of Touvron et al. 2023: token embedding, pre-norm blocks of causal attention with
// turned queries and keys (Su et al. 2021) and a SwiGLU MLP (Shazeer 2020), RMS norms (Zhang and Sennrich
// 2019), no biases and no position embedding. Unlike there, the logits go through the transposed token
// embedding, as in GPT, and Dropout may be on.
//
// Its layers are "embed", "block0" ... "block<Layers-1>", "head". The hidden layer of a block has 8/3 Width
// elements, rounded up to a multiple of 8: with its third matrix the MLP has about as many parameters as that
// of a GPT. Initial values and weight decay are as in GPT.
func Llama(l LlamaConfig) (*Model, error) {
	c := GPTConfig(l)
	if err := c.check(); err != nil {
		return nil, err
	}
	if d := c.Width / c.Heads; d%2 != 0 {
		return nil, fmt.Errorf("model.heads: %d heads of model.width %d have %d elements each; a llama turns pairs of them, so the width of a head must be even", c.Heads, c.Width, d)
	}
	layers := []Layer{{Name: "embed", Segments: []Segment{newTokenEmbedding(c)}}}
	for i := range c.Layers {
		name := fmt.Sprintf("block%d", i)
		layers = append(layers, Layer{Name: name, Segments: []Segment{
			newRMSLinear(c, "attention input", name+".attention.norm.gain", matrix(name+".attention.qkv.weight", 3*c.Width, c.Width, c.initStd()), c.qkv(), true),
			turnedAttention{attentionCore{c}},
			newPlainOutput(c, name), newGatedMLP(c, name)}})
	}
	layers = append(layers, Layer{Name: "head", Segments: []Segment{
		newRMSLinear(c, "logits", "head.norm.gain", c.tokenTable(), Port{Name: "logits", PerToken: c.Vocab}, false),
		crossEntropy{c.Vocab}}})
	return New("llama", c.Context, c.Vocab, layers)
}

// gatedHidden is the width of the hidden layer: 8/3 width, rounded up to a multiple of 8.
func (c GPTConfig) gatedHidden() int { return (8*c.Width + 23) / 24 * 8 }
