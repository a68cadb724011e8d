package reference

import (
	"fmt"
	"math"
)

// GPT is the model of Radford et al. 2019 with a GELU of the tanh form and tied embeddings.
type GPT struct {
	Layers, Width, Heads, Context, Vocab int
	// Parameters by canonical name; matrices are [out, in], row by row.
	Parameters map[string][]float64
	// Mask, if given, is the factor of dropout, 0 or 1/(1-p), of an element of a sample at a site: layer 0 is
	// the embedding (site 0), layer 1+i is block i (sites 1, attention, and 2, MLP). Element counts over
	// [context, width].
	Mask func(layer, site, sample, element int) float64
}

// Losses are the cross-entropies of all tokens, in nats. Sample is the index of the first row.
func (g GPT) Losses(tokens, targets [][]int, sample int) [][]float64 {
	r := g.run(tokens, targets, sample)
	out := make([][]float64, len(tokens))
	for i := range out {
		for _, n := range r.losses[i] {
			out[i] = append(out[i], r.tape.value[n])
		}
	}
	return out
}

// Gradients are the losses, and the gradient of scale times their sum by every parameter.
func (g GPT) Gradients(tokens, targets [][]int, sample int, scale float64) (losses [][]float64, gradients map[string][]float64) {
	r := g.run(tokens, targets, sample)
	losses = make([][]float64, len(tokens))
	seed := map[number]float64{}
	for i := range losses {
		for _, n := range r.losses[i] {
			losses[i] = append(losses[i], r.tape.value[n])
			seed[n] = scale
		}
	}
	slope := r.tape.backward(seed)
	gradients = map[string][]float64{}
	for name, p := range r.parameters {
		d := make([]float64, len(p))
		for i, n := range p {
			d[i] = slope[n]
		}
		gradients[name] = d
	}
	return losses, gradients
}

// run is one forward pass.
type run struct {
	GPT
	tape       tape
	parameters map[string][]number
	losses     [][]number
}

func (g GPT) run(tokens, targets [][]int, sample int) *run {
	r := &run{GPT: g, parameters: map[string][]number{}}
	for name, p := range g.Parameters {
		r.parameters[name] = r.tape.inputs(p)
	}
	for i := range tokens {
		r.losses = append(r.losses, r.sequence(tokens[i], targets[i], sample+i))
	}
	return r
}

// sequence returns the loss of every token of one row.
func (r *run) sequence(tokens, targets []int, sample int) []number {
	var x [][]number // [tokens][width]
	for t, token := range tokens {
		v := r.add(r.row("embed.tokens", token), r.row("embed.positions", t))
		x = append(x, r.dropout(v, 0, 0, sample, t))
	}
	for i := range r.Layers {
		b := fmt.Sprintf("block%d.", i)
		h := r.attention(r.each(x, func(_ int, v []number) []number {
			return r.linear(r.norm(v, b+"attention.norm"), b+"attention.qkv")
		}))
		x = r.each(x, func(t int, v []number) []number {
			return r.add(v, r.dropout(r.linear(h[t], b+"attention.projection"), 1+i, 1, sample, t))
		})
		x = r.each(x, func(t int, v []number) []number {
			h := r.linear(r.norm(v, b+"mlp.norm"), b+"mlp.fc")
			for j := range h {
				h[j] = r.gelu(h[j])
			}
			return r.add(v, r.dropout(r.linear(h, b+"mlp.projection"), 1+i, 2, sample, t))
		})
	}
	var losses []number
	for t, v := range x {
		v = r.norm(v, "head.norm")
		logits := make([]number, r.Vocab)
		for token := range logits {
			logits[token] = r.dot(v, r.row("embed.tokens", token))
		}
		losses = append(losses, r.tape.subtract(r.logSumExp(logits), logits[targets[t]]))
	}
	return losses
}

// attention takes the rows [q, k, v] of all tokens; token t sees the tokens up to t.
func (r *run) attention(qkv [][]number) [][]number {
	size := r.Width / r.Heads
	part := func(t, which, head int) []number {
		from := which*r.Width + head*size
		return qkv[t][from : from+size]
	}
	out := make([][]number, len(qkv))
	for t := range qkv {
		for head := range r.Heads {
			var scores []number
			for s := range t + 1 {
				scores = append(scores, r.tape.scale(r.dot(part(t, 0, head), part(s, 1, head)), 1/math.Sqrt(float64(size))))
			}
			total := r.logSumExp(scores)
			sum := make([]number, size)
			for s := range scores {
				p := r.tape.exp(r.tape.subtract(scores[s], total))
				for j, v := range part(s, 2, head) {
					if s == 0 {
						sum[j] = r.tape.multiply(p, v)
					} else {
						sum[j] = r.tape.add(sum[j], r.tape.multiply(p, v))
					}
				}
			}
			out[t] = append(out[t], sum...)
		}
	}
	return out
}

// norm is (v - mean) / sqrt(variance + 1e-5) * gain + bias.
func (r *run) norm(v []number, name string) []number {
	gain, bias := r.parameters[name+".gain"], r.parameters[name+".bias"]
	n := 1 / float64(len(v))
	mean := r.tape.scale(r.sum(v), n)
	centred := make([]number, len(v))
	for i := range v {
		centred[i] = r.tape.subtract(v[i], mean)
	}
	variance := r.tape.scale(r.dot(centred, centred), n)
	rstd := r.tape.power(r.tape.shift(variance, 1e-5), -0.5)
	out := make([]number, len(v))
	for i := range v {
		out[i] = r.tape.add(r.tape.multiply(r.tape.multiply(centred[i], rstd), gain[i]), bias[i])
	}
	return out
}

func (r *run) linear(v []number, name string) []number {
	bias := r.parameters[name+".bias"]
	out := make([]number, len(bias))
	for i := range out {
		w := r.parameters[name+".weight"][i*len(v) : (i+1)*len(v)]
		out[i] = r.tape.add(r.dot(v, w), bias[i])
	}
	return out
}

// gelu is 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
func (r *run) gelu(x number) number {
	t := &r.tape
	cube := t.multiply(x, t.multiply(x, x))
	inner := t.scale(t.add(x, t.scale(cube, 0.044715)), math.Sqrt(2/math.Pi))
	return t.scale(t.multiply(x, t.shift(t.tanh(inner), 1)), 0.5)
}

func (r *run) dropout(v []number, layer, site, sample, position int) []number {
	if r.Mask == nil {
		return v
	}
	out := make([]number, len(v))
	for i := range v {
		out[i] = r.tape.scale(v[i], r.Mask(layer, site, sample, position*len(v)+i))
	}
	return out
}

// logSumExp subtracts the largest value first, which changes nothing but the rounding.
func (r *run) logSumExp(v []number) number {
	largest := math.Inf(-1)
	for _, n := range v {
		largest = max(largest, r.tape.value[n])
	}
	e := make([]number, len(v))
	for i := range v {
		e[i] = r.tape.exp(r.tape.shift(v[i], -largest))
	}
	return r.tape.shift(r.tape.log(r.sum(e)), largest)
}

func (r *run) row(name string, i int) []number {
	return r.parameters[name][i*r.Width : (i+1)*r.Width]
}

func (r *run) each(x [][]number, f func(t int, v []number) []number) [][]number {
	out := make([][]number, len(x))
	for t := range x {
		out[t] = f(t, x[t])
	}
	return out
}

func (r *run) add(a, b []number) []number {
	out := make([]number, len(a))
	for i := range a {
		out[i] = r.tape.add(a[i], b[i])
	}
	return out
}

func (r *run) sum(v []number) number {
	s := v[0]
	for _, n := range v[1:] {
		s = r.tape.add(s, n)
	}
	return s
}

func (r *run) dot(a, b []number) number {
	s := r.tape.multiply(a[0], b[0])
	for i := 1; i < len(a); i++ {
		s = r.tape.add(s, r.tape.multiply(a[i], b[i]))
	}
	return s
}

// number is the index of a number on the tape.
type number int32

// tape holds the numbers of a forward pass in the order in which they were made.
type tape struct {
	value []float64
	from  [][2]number  // what it was made of; the number itself stands for nothing
	slope [][2]float64 // the derivative by each of them
}

func (t *tape) push(v float64, a, b number, da, db float64) number {
	t.value = append(t.value, v)
	t.from = append(t.from, [2]number{a, b})
	t.slope = append(t.slope, [2]float64{da, db})
	return number(len(t.value) - 1)
}

// one records a number that was made of one other.
func (t *tape) one(v float64, a number, da float64) number { return t.push(v, a, a, da, 0) }

func (t *tape) inputs(v []float64) []number {
	out := make([]number, len(v))
	for i := range v {
		self := number(len(t.value))
		out[i] = t.push(v[i], self, self, 0, 0)
	}
	return out
}

func (t *tape) add(a, b number) number      { return t.push(t.value[a]+t.value[b], a, b, 1, 1) }
func (t *tape) subtract(a, b number) number { return t.push(t.value[a]-t.value[b], a, b, 1, -1) }
func (t *tape) multiply(a, b number) number {
	return t.push(t.value[a]*t.value[b], a, b, t.value[b], t.value[a])
}
func (t *tape) scale(a number, s float64) number { return t.one(t.value[a]*s, a, s) }
func (t *tape) shift(a number, s float64) number { return t.one(t.value[a]+s, a, 1) }
func (t *tape) log(a number) number              { return t.one(math.Log(t.value[a]), a, 1/t.value[a]) }
func (t *tape) exp(a number) number {
	v := math.Exp(t.value[a])
	return t.one(v, a, v)
}
func (t *tape) tanh(a number) number {
	v := math.Tanh(t.value[a])
	return t.one(v, a, 1-v*v)
}
func (t *tape) power(a number, p float64) number {
	v := math.Pow(t.value[a], p)
	return t.one(v, a, p*v/t.value[a])
}

// backward is the chain rule: the derivative of the sum of seed[n] * n by every number.
func (t *tape) backward(seed map[number]float64) []float64 {
	d := make([]float64, len(t.value))
	for n, s := range seed {
		d[n] = s
	}
	for n := len(d) - 1; n >= 0; n-- {
		for k, from := range t.from[n] {
			if int(from) < n {
				d[from] += t.slope[n][k] * d[n]
			}
		}
	}
	return d
}
