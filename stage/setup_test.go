package stage_test

import (
	"testing"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/stage"
)

// bench is a device, a stream and a tiny model with weights.
type bench struct {
	t       testing.TB
	device  *cpu.Device
	stream  device.Stream
	store   device.DType // of tensors
	account *device.Account
	model   *model.Model
}

const (
	rows    = 3
	context = 4
	vocab   = 6
	seed    = 11
)

// newBench stores tensors in store: F32, F64, or BF16 on a device that works in F32.
func newBench(t testing.TB, store device.DType) *bench {
	t.Helper()
	float := store
	if store == device.BF16 {
		float = device.F32
	}
	d := cpu.New(cpu.Options{Float: float, Poison: true})
	s, err := d.OpenStream("test", 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.GPT(model.GPTConfig{Layers: 2, Width: 8, Heads: 2, Context: context, Vocab: vocab, Dropout: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bench{t, d, s, store, device.NewAccount("stage.p0.d0", 0), m}
}

// do runs work on the stream and waits for it.
func (b *bench) do(work func(device.Kernels) error) error {
	done := make(chan error, 1)
	b.stream.Do(work, func(err error) { done <- err })
	return <-done
}

// weights are those of some layers, with made-up values that depend on the parameter alone.
func (b *bench) weights(layers plan.Range) *stage.Weights {
	b.t.Helper()
	w, err := stage.NewWeights(b.device, b.store, b.account, b.model, layers)
	if err != nil {
		b.t.Fatal(err)
	}
	for l := layers.Lo; l < layers.Hi; l++ {
		for _, i := range b.model.LayerBuckets(l) {
			set(w.Vector(i), func(e int) float64 { return 0.3 * random.Normal(random.Key(uint64(i)), uint64(e)) })
		}
	}
	return w
}

// batch is a micro-batch of made-up tokens, which the caller releases.
func (b *bench) batch(training bool) stage.MicroBatch {
	b.t.Helper()
	ints := func(key uint64) device.Slice {
		s, err := b.device.Alloc(b.account, device.Messages, device.I32, rows*context)
		if err != nil {
			b.t.Fatal(err)
		}
		for i, v := range cpu.Int32s(s) {
			_ = v
			cpu.Int32s(s)[i] = int32(random.Block(key, 0, uint64(i))[0] % vocab)
		}
		return s
	}
	return stage.MicroBatch{
		Rows: rows, Context: context, Seed: seed, Step: 5, Sample: 2, Training: training, LossScale: 1.0 / (rows * context),
		Tokens: ints(1), Targets: ints(2),
	}
}

func release(b stage.MicroBatch) {
	b.Tokens.Release()
	b.Targets.Release()
}

// set and get work on tensors of any floating-point type.
func set(s device.Slice, of func(i int) float64) {
	for i := range s.Len {
		switch s.Type {
		case device.F64:
			cpu.Float64s(s)[i] = of(i)
		case device.BF16:
			cpu.BFloat16s(s)[i] = cpu.Round(float32(of(i)))
		default:
			cpu.Float32s(s)[i] = float32(of(i))
		}
	}
}

func get(s device.Slice) []float64 {
	out := make([]float64, s.Len)
	for i := range out {
		switch s.Type {
		case device.F64:
			out[i] = cpu.Float64s(s)[i]
		case device.BF16:
			out[i] = float64(cpu.BFloat16s(s)[i].Float32())
		default:
			out[i] = float64(cpu.Float32s(s)[i])
		}
	}
	return out
}

type use struct{ bucket, use int }

// gradients are a flat vector for every use of a bucket in some layers.
func (b *bench) gradients(layers plan.Range) map[use]device.Slice {
	b.t.Helper()
	out := map[use]device.Slice{}
	for i, bucket := range b.model.Buckets() {
		for u, l := range bucket.Uses {
			if l < layers.Lo || l >= layers.Hi {
				continue
			}
			s, err := b.device.Alloc(b.account, device.Gradients, b.device.Float(), bucket.Len)
			if err != nil {
				b.t.Fatal(err)
			}
			out[use{i, u}] = s
		}
	}
	return out
}
