package model_test

import (
	"math"
	"testing"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/model/check"
	"github.com/troupe-train/troupe/tests/reference"
)

var small = model.GPTConfig{Layers: 2, Width: 12, Heads: 3, Context: 6, Vocab: 9, Dropout: 0.2}

// uniform are n numbers in [lo, hi).
func uniform(name string, n int, lo, hi float64) []float64 {
	key := random.String(name)
	v := make([]float64, n)
	for i := range v {
		v[i] = lo + (hi-lo)*random.Uniform(key, uint64(i))
	}
	return v
}

// parametersOf are parameters far from their initial values, so that no gradient is small by luck. They
// are exact in float32.
func parametersOf(m *model.Model) map[string][]float64 {
	out := map[string][]float64{}
	for _, p := range m.Params() {
		base := 0.0
		if p.Init.Kind == model.Ones {
			base = 1
		}
		v := uniform(p.Name, p.Len(), base-0.4, base+0.4)
		for i := range v {
			v[i] = float64(float32(v[i]))
		}
		out[p.Name] = v
	}
	return out
}

func batchOf(c model.GPTConfig, rows, context int) batch {
	draw := func(name string) [][]int {
		out := make([][]int, rows)
		for i := range out {
			for j := range context {
				out[i] = append(out[i], int(random.Uniform(random.String(name), uint64(i*context+j))*float64(c.Vocab)))
			}
		}
		return out
	}
	return batch{tokens: draw("tokens"), targets: draw("targets"), sample: 5, step: 9, training: true}
}

// masks has the factors of dropout of a step, made by the kernel from the key that is documented.
func (b *bench) masks(c model.GPTConfig, x batch) func(layer, site, sample, element int) float64 {
	perSample := len(x.tokens[0]) * c.Width
	made := map[[3]int][]float64{}
	ones := b.alloc(perSample)
	return func(layer, site, sample, element int) float64 {
		at := [3]int{layer, site, sample}
		if made[at] == nil {
			b.do(func(k device.Kernels) {
				k.Fill(ones, 1)
				k.Dropout(ones, device.Slice{}, ones, device.Dropout{P: c.Dropout, Key: model.DropoutKey(seed, x.step, layer, uint64(site)), Sample: uint64(sample), PerSample: perSample})
			})
			made[at] = get(ones)
		}
		return made[at][element]
	}
}

// TestAgainstReference compares losses and all gradients with the plain implementation, tensor by
// tensor. The tolerance is relative to the largest element of the tensor.
func TestAgainstReference(t *testing.T) {
	for _, c := range []struct {
		name      string
		float     device.DType
		dropout   float64
		rows, len int
		tolerance float64
	}{
		{"f64", device.F64, 0, 3, 6, 1e-10},
		{"f64 dropout", device.F64, 0.2, 3, 6, 1e-10},
		{"f64 shorter than the context", device.F64, 0.2, 2, 4, 1e-10},
		{"f64 one token", device.F64, 0.2, 1, 1, 1e-10},
		// Sums of up to 48 products of rounded numbers through 2 blocks, each rounding 6e-8.
		{"f32", device.F32, 0, 3, 6, 5e-6},
		{"f32 dropout", device.F32, 0.2, 3, 6, 5e-6},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := small
			config.Dropout = c.dropout
			m, err := model.GPT(config)
			if err != nil {
				t.Fatal(err)
			}
			parameters := parametersOf(m)
			b := newBench(t, c.float)
			w := newWhole(b, m, parameters)
			x := batchOf(config, c.rows, c.len)
			losses := w.forward(x)
			w.backward()

			ref := reference.GPT{Layers: config.Layers, Width: config.Width, Heads: config.Heads, Context: config.Context, Vocab: config.Vocab,
				Parameters: parameters}
			if c.dropout > 0 {
				ref.Mask = b.masks(config, x)
			}
			wantLosses, want := ref.Gradients(x.tokens, x.targets, x.sample, 1/float64(c.rows*c.len))
			for i := range losses {
				compareTensor(t, "loss", losses[i], wantLosses[i], c.tolerance)
			}
			got := w.gradients()
			for _, p := range m.Params() {
				compareTensor(t, p.Name, got[p.Name], want[p.Name], c.tolerance)
			}
		})
	}
}

func compareTensor(t *testing.T, name string, got, want []float64, tolerance float64) {
	t.Helper()
	var largest, worst float64
	for i := range want {
		largest = max(largest, math.Abs(want[i]))
	}
	if len(got) != len(want) || largest == 0 {
		t.Fatalf("%s: %d elements, want %d, the largest %g", name, len(got), len(want), largest)
	}
	for i := range want {
		// max passes NaN on.
		worst = max(worst, math.Abs(got[i]-want[i])/largest)
	}
	if !(worst <= tolerance) {
		t.Errorf("%s: relative error %.3g, tolerance %.3g", name, worst, tolerance)
	} else {
		t.Logf("%s: relative error %.3g", name, worst)
	}
}

// TestEvaluation has no dropout, and draws nothing from the keys.
func TestEvaluation(t *testing.T) {
	m, err := model.GPT(small)
	if err != nil {
		t.Fatal(err)
	}
	parameters := parametersOf(m)
	x := batchOf(small, 3, 6)
	x.training = false
	losses := newWhole(newBench(t, device.F64), m, parameters).forward(x)
	want := reference.GPT{Layers: small.Layers, Width: small.Width, Heads: small.Heads, Context: small.Context, Vocab: small.Vocab,
		Parameters: parameters}.Losses(x.tokens, x.targets, x.sample)
	for i := range losses {
		compareTensor(t, "loss", losses[i], want[i], 1e-10)
	}
}

// TestTiedEmbedding: the gradient of the token embedding has two uses, and neither is the whole.
func TestTiedEmbedding(t *testing.T) {
	m, err := model.GPT(small)
	if err != nil {
		t.Fatal(err)
	}
	w := newWhole(newBench(t, device.F64), m, parametersOf(m))
	x := batchOf(small, 3, 6)
	w.forward(x)
	w.backward()
	inHead, inEmbed := get(w.grads[0][1]), get(w.grads[0][0])
	used := map[int]bool{}
	for _, row := range x.tokens {
		for _, token := range row {
			used[token] = true
		}
	}
	for token := range small.Vocab {
		var head, embed float64
		for i := range small.Width {
			head += math.Abs(inHead[token*small.Width+i])
			embed += math.Abs(inEmbed[token*small.Width+i])
		}
		if head == 0 || (embed != 0) != used[token] {
			t.Errorf("token %d (in the input: %v): gradient %g as an input, %g as an output", token, used[token], embed, head)
		}
	}
}

// TestBatchOfRows: a row has the same losses in any micro-batch, bit for bit, because masks are
// keyed by the sample and the kernels work row by row. So ragged micro-batches change nothing.
func TestBatchOfRows(t *testing.T) {
	m, err := model.GPT(small)
	if err != nil {
		t.Fatal(err)
	}
	w := newWhole(newBench(t, device.F32), m, parametersOf(m))
	x := batchOf(small, 10, 6)
	together := w.forward(x)
	for _, cut := range [][2]int{{0, 4}, {4, 8}, {8, 10}} {
		part := x
		part.tokens, part.targets, part.sample = x.tokens[cut[0]:cut[1]], x.targets[cut[0]:cut[1]], x.sample+cut[0]
		for i, row := range w.forward(part) {
			for j := range row {
				if row[j] != together[cut[0]+i][j] {
					t.Fatalf("row %d token %d: loss %v in rows %v, %v in all", cut[0]+i, j, row[j], cut, together[cut[0]+i][j])
				}
			}
		}
	}
}

// TestMasks: equal when made again, different for another sample, layer, step or seed.
func TestMasks(t *testing.T) {
	m, err := model.GPT(small)
	if err != nil {
		t.Fatal(err)
	}
	w := newWhole(newBench(t, device.F64), m, parametersOf(m))
	x := batchOf(small, 2, 6)
	first := w.forward(x)
	if again := w.forward(x); again[0][0] != first[0][0] || again[1][5] != first[1][5] {
		t.Error("the same call draws other masks")
	}
	for name, change := range map[string]func(*batch){
		"sample": func(x *batch) { x.sample++ },
		"step":   func(x *batch) { x.step++ },
	} {
		y := x
		change(&y)
		if w.forward(y)[0][0] == first[0][0] {
			t.Errorf("another %s has the same masks", name)
		}
	}
	mask := w.masks(small, x)
	for _, other := range [][3]int{{1, 1, 6}, {2, 1, 5}, {1, 2, 5}, {0, 0, 5}} {
		same := true
		for i := range 6 * small.Width {
			same = same && mask(1, 1, 5, i) == mask(other[0], other[1], other[2], i)
		}
		if same {
			t.Errorf("layer, site, sample %v have the mask of layer 1, site 1, sample 5", other)
		}
	}
}

// TestPhasesTwice: forward, backward-input and backward-weight again give the same bits, also in memory of
// another run and with weight gradients after all input gradients.
func TestPhasesTwice(t *testing.T) {
	m, err := model.GPT(small)
	if err != nil {
		t.Fatal(err)
	}
	w := newWhole(newBench(t, device.F32), m, parametersOf(m))
	x := batchOf(small, 3, 6)
	w.forward(x)
	w.backward()
	first := w.gradientBits()
	w.backward()
	if w.gradientBits() != first {
		t.Error("backward again gives other bits")
	}
	w.forward(x)
	for i := len(w.calls) - 1; i >= 0; i-- {
		w.run(w.phases[i], w.calls[i], check.BackwardInput)
		w.run(w.phases[i], w.calls[i], check.BackwardWeight)
	}
	if w.gradientBits() != first {
		t.Error("forward and backward again, segment by segment, give other bits")
	}
}
