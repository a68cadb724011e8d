package stage_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/stage"
)

// pass runs the passes of a micro-batch through chunks that are cut at some layers, and returns
// the losses of the tokens and the gradients.
func pass(b *bench, cuts ...int) (losses []float64, grads map[use][]float64) {
	b.t.Helper()
	held := b.account.Held()
	mb := b.batch(true)
	grads = map[use][]float64{}
	edges := append(append([]int{0}, cuts...), len(b.model.Layers))
	var weights []*stage.Weights
	var chunks []*stage.Chunk
	for i := range edges[1:] {
		r := plan.Range{Lo: edges[i], Hi: edges[i+1]}
		weights = append(weights, b.weights(r))
		chunks = append(chunks, stage.NewChunk(weights[i], r))
	}
	err := b.do(func(k device.Kernels) error {
		var x device.Slice
		tapes := make([]*stage.Tape, len(chunks))
		for i, c := range chunks {
			y, tape, err := c.Forward(k, mb, x)
			if err != nil {
				return err
			}
			if !x.IsZero() {
				x.Release()
			}
			x, tapes[i] = y, tape
		}
		losses = get(x)
		x.Release()
		x = device.Slice{}
		for i := len(chunks) - 1; i >= 0; i-- {
			dx, err := chunks[i].BackwardInput(k, tapes[i], x)
			if err != nil {
				return err
			}
			if !x.IsZero() {
				x.Release()
			}
			x = dx
		}
		if !x.IsZero() {
			return errors.New("layer 0 has an input gradient")
		}
		for i, c := range chunks {
			g := b.gradients(plan.Range{Lo: edges[i], Hi: edges[i+1]})
			if err := c.BackwardWeight(k, tapes[i], func(bucket, u int) device.Slice { return g[use{bucket, u}] }); err != nil {
				return err
			}
			for key, s := range g {
				grads[key] = get(s)
				s.Release()
			}
			tapes[i].ReleaseStash()
			tapes[i].ReleaseSaved()
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, w := range weights {
		w.Release()
	}
	release(mb)
	if n := b.account.Held(); n != held {
		b.t.Fatalf("%d bytes are left", n-held)
	}
	return losses, grads
}

// TestCuts: where a model is cut into chunks changes no bit of losses and gradients.
func TestCuts(t *testing.T) {
	b := newBench(t, device.F32)
	want, grads := pass(b)
	for _, cuts := range [][]int{{1}, {2}, {3}, {1, 2}, {1, 3}, {2, 3}, {1, 2, 3}} {
		got, g := pass(b, cuts...)
		if !slices.Equal(got, want) {
			t.Errorf("cut at %v: losses %v, want %v", cuts, got, want)
		}
		if len(g) != len(grads) {
			t.Errorf("cut at %v: %d gradients, want %d", cuts, len(g), len(grads))
		}
		for key := range grads {
			if !slices.Equal(g[key], grads[key]) {
				t.Errorf("cut at %v: gradient %v differs", cuts, key)
			}
		}
	}
}

// TestGradients: gradients are those of the mean loss over tokens, by central differences in float64.
func TestGradients(t *testing.T) {
	b := newBench(t, device.F64)
	_, grads := pass(b)
	all := plan.Range{Lo: 0, Hi: len(b.model.Layers)}
	w := b.weights(all)
	defer w.Release()
	c := stage.NewChunk(w, all)
	mb := b.batch(true)
	defer release(mb)
	loss := func() (sum float64) {
		err := b.do(func(k device.Kernels) error {
			y, tape, err := c.Forward(k, mb, device.Slice{})
			if err != nil {
				return err
			}
			for _, l := range get(y) {
				sum += l * mb.LossScale
			}
			y.Release()
			tape.ReleaseSaved()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	const h = 1e-5
	for i, bucket := range b.model.Buckets() {
		v := w.Vector(i)
		for n := range uint64(8) {
			e := int(random.Block(seed, uint64(i), n)[0] % uint32(bucket.Len))
			old := get(v)
			at := func(d float64) float64 {
				set(v, func(j int) float64 {
					if j == e {
						return old[j] + d
					}
					return old[j]
				})
				return loss()
			}
			want := (at(h) - at(-h)) / (2 * h)
			at(0)
			got := 0.0
			for u := range bucket.Uses {
				got += grads[use{i, u}][e]
			}
			if math.Abs(got-want) > 1e-8*(1+math.Abs(want)) {
				t.Errorf("gradient of bucket %s [%d] is %v, central difference %v", bucket.Name, e, got, want)
			}
		}
	}
}

// TestEvaluation: without training nothing is kept, dropout is off, and no more memory is used than
// the widest pair of tensors needs.
func TestEvaluation(t *testing.T) {
	b := newBench(t, device.F32)
	all := plan.Range{Lo: 0, Hi: len(b.model.Layers)}
	w := b.weights(all)
	defer w.Release()
	c := stage.NewChunk(w, all)
	mb := b.batch(false)
	defer release(mb)
	held := b.account.Held()
	err := b.do(func(k device.Kernels) error {
		y, tape, err := c.Forward(k, mb, device.Slice{})
		if err != nil {
			return err
		}
		if tape != nil {
			t.Error("a tape is kept")
		}
		if got, want := b.account.Held()-held, y.Bytes(); got != want {
			t.Errorf("%d bytes are held beside an output of %d", got-want, want)
		}
		first := get(y)
		y.Release()
		mb.Step++ // another mask, if there were one
		y, _, err = c.Forward(k, mb, device.Slice{})
		if err != nil {
			return err
		}
		if !slices.Equal(get(y), first) {
			t.Error("dropout is on")
		}
		y.Release()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	training, _ := pass(b)
	if len(training) != rows*context {
		t.Errorf("%d losses", len(training))
	}
}

// TestForwardTo: the output of a named port, from which the loss follows.
func TestForwardTo(t *testing.T) {
	b := newBench(t, device.F64)
	all := plan.Range{Lo: 0, Hi: len(b.model.Layers)}
	w := b.weights(all)
	defer w.Release()
	c := stage.NewChunk(w, all)
	mb := b.batch(false)
	defer release(mb)
	held := b.account.Held()
	err := b.do(func(k device.Kernels) error {
		y, err := c.ForwardTo(k, "logits", mb, device.Slice{})
		if err != nil {
			return err
		}
		logits := get(y)
		y.Release()
		if len(logits) != rows*context*vocab {
			return fmt.Errorf("%d logits", len(logits))
		}
		if y, _, err = c.Forward(k, mb, device.Slice{}); err != nil {
			return err
		}
		losses := get(y)
		y.Release()
		targets := make([]byte, 4*rows*context)
		k.Download(targets, mb.Targets)
		for i, want := range losses {
			row := logits[i*vocab : (i+1)*vocab]
			var sum float64
			for _, l := range row {
				sum += math.Exp(l)
			}
			if got := math.Log(sum) - row[targets[4*i]]; math.Abs(got-want) > 1e-12 {
				t.Errorf("token %d: loss %v from the logits, %v from the chunk", i, got, want)
			}
		}
		if _, err := c.ForwardTo(k, "nothing", mb, device.Slice{}); err == nil || !strings.Contains(err.Error(), "no segment") {
			t.Errorf("a port that nothing writes: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if b.account.Held() != held {
		t.Errorf("%d bytes are left", b.account.Held()-held)
	}
}
