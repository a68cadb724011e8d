package model_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
)

var smallLlama = model.LlamaConfig{Layers: 2, Width: 12, Heads: 3, Context: 6, Vocab: 9}

// plainLlama is the loss of every token of a sequence, straight from the definition.
func plainLlama(c model.LlamaConfig, parameters map[string][]float64, tokens, targets []int) []float64 {
	w, d, hidden := c.Width, c.Width/c.Heads, len(parameters["block0.mlp.down.weight"])/c.Width
	norm := func(x, gain []float64) []float64 {
		var squares float64
		for _, v := range x {
			squares += v * v
		}
		y := make([]float64, w)
		for i, v := range x {
			y[i] = v / math.Sqrt(squares/float64(w)+1e-5) * gain[i]
		}
		return y
	}
	times := func(x []float64, name string) []float64 {
		m := parameters[name]
		y := make([]float64, len(m)/len(x))
		for i := range y {
			for j, v := range x {
				y[i] += m[i*len(x)+j] * v
			}
		}
		return y
	}
	x := make([][]float64, len(tokens))
	for t, token := range tokens {
		x[t] = append(x[t], parameters["embed.tokens"][token*w:(token+1)*w]...)
	}
	add := func(t int, y []float64) {
		for i, v := range y {
			x[t][i] += v
		}
	}
	for l := range c.Layers {
		block := fmt.Sprintf("block%d.", l)
		qkv := make([][]float64, len(x))
		for t := range x {
			qkv[t] = times(norm(x[t], parameters[block+"attention.norm.gain"]), block+"attention.qkv.weight")
			for h := 0; h < 2*w; h += d {
				for i := range d / 2 {
					sin, cos := math.Sincos(float64(t) * math.Pow(10000, -2*float64(i)/float64(d)))
					a, b := qkv[t][h+i], qkv[t][h+i+d/2]
					qkv[t][h+i], qkv[t][h+i+d/2] = a*cos-b*sin, a*sin+b*cos
				}
			}
		}
		for t := range x {
			attended := make([]float64, w)
			for h := 0; h < w; h += d {
				var sum float64
				for s := range t + 1 {
					var score float64
					for i := range d {
						score += qkv[t][h+i] * qkv[s][w+h+i]
					}
					p := math.Exp(score / math.Sqrt(float64(d)))
					sum += p
					for i := range d {
						attended[h+i] += p * qkv[s][2*w+h+i]
					}
				}
				for i := range d {
					attended[h+i] /= sum
				}
			}
			add(t, times(attended, block+"attention.projection.weight"))
			gates := times(norm(x[t], parameters[block+"mlp.norm.gain"]), block+"mlp.gates.weight")
			up := make([]float64, hidden)
			for i := range up {
				up[i] = gates[i] / (1 + math.Exp(-gates[i])) * gates[hidden+i]
			}
			add(t, times(up, block+"mlp.down.weight"))
		}
	}
	var losses []float64
	for t := range x {
		var sum float64
		logits := times(norm(x[t], parameters["head.norm.gain"]), "embed.tokens")
		for _, v := range logits {
			sum += math.Exp(v)
		}
		losses = append(losses, math.Log(sum)-logits[targets[t]])
	}
	return losses
}

// TestLlama compares losses with the plain implementation, and the gradient of every parameter with the
// central difference of the plain loss.
func TestLlama(t *testing.T) {
	m, err := model.Llama(smallLlama)
	if err != nil {
		t.Fatal(err)
	}
	parameters := parametersOf(m)
	x := batchOf(model.GPTConfig(smallLlama), 2, 6)
	w := newWhole(newBench(t, device.F64), m, parameters)
	for i, losses := range w.forward(x) {
		compareTensor(t, "loss", losses, plainLlama(smallLlama, parameters, x.tokens[i], x.targets[i]), 1e-10)
	}
	w.backward()
	mean := func() (sum float64) {
		for i := range x.tokens {
			for _, v := range plainLlama(smallLlama, parameters, x.tokens[i], x.targets[i]) {
				sum += v / 12
			}
		}
		return sum
	}
	const h = 1e-5
	for name, got := range w.gradients() {
		v := parameters[name]
		// Every element of the small parameters, and some of the others.
		for i := 0; i < len(v); i += 1 + len(v)/20 {
			at := v[i]
			v[i] = at + h
			above := mean()
			v[i] = at - h
			want := (above - mean()) / (2 * h)
			v[i] = at
			if !(math.Abs(got[i]-want) <= 1e-8) {
				t.Errorf("%s[%d]: gradient %.10g, central difference %.10g", name, i, got[i], want)
			}
		}
	}
	got := newWhole(newBench(t, device.F32), m, parameters).forward(x)
	for i := range got {
		compareTensor(t, "loss in float32", got[i], plainLlama(smallLlama, parameters, x.tokens[i], x.targets[i]), 5e-6)
	}
}

// The names, shapes and order are a contract: checkpoints and weights_sha256 depend on them.
func TestLlamaParameters(t *testing.T) {
	m, err := model.Llama(model.LlamaConfig{Layers: 1, Width: 12, Heads: 2, Context: 4, Vocab: 5})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range m.Params() {
		got = append(got, fmt.Sprintf("%s %v init %d %.4g decay %v", p.Name, p.Shape, p.Init.Kind, p.Init.Std, p.Decay))
	}
	want := `embed.tokens [5 12] init 2 0.16 decay true
block0.attention.norm.gain [12] init 1 0 decay false
block0.attention.qkv.weight [36 12] init 2 0.16 decay true
block0.attention.projection.weight [12 12] init 2 0.1131 decay true
block0.mlp.norm.gain [12] init 1 0 decay false
block0.mlp.gates.weight [64 12] init 2 0.16 decay true
block0.mlp.down.weight [12 32] init 2 0.1131 decay true
head.norm.gain [12] init 1 0 decay false`
	if strings.Join(got, "\n") != want {
		t.Errorf("parameters:\n%s", strings.Join(got, "\n"))
	}
	// 8/3 width rounded up to a multiple of 8.
	for width, hidden := range map[int]int{2: 8, 4: 16, 6: 16, 12: 32, 14: 40, 384: 1024, 768: 2048, 1000: 2672} {
		m, err := model.Llama(model.LlamaConfig{Layers: 1, Width: width, Heads: 1, Context: 1, Vocab: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m.Params() {
			if p.Name == "block0.mlp.down.weight" && p.Shape[1] != hidden {
				t.Errorf("width %d: hidden layer of %d, want %d", width, p.Shape[1], hidden)
			}
		}
	}
}

func TestLlamaRefuses(t *testing.T) {
	c := model.LlamaConfig{Layers: 1, Width: 9, Heads: 3, Context: 4, Vocab: 5}
	if _, err := model.Llama(c); err == nil || !strings.HasPrefix(err.Error(), "model.heads: 3 heads of model.width 9 have 3 elements each") {
		t.Errorf("odd heads: error %v", err)
	}
	c.Heads = 2
	if _, err := model.Llama(c); err == nil || !strings.Contains(err.Error(), "2 heads do not divide model.width 9") {
		t.Errorf("heads that do not divide the width: error %v", err)
	}
}
