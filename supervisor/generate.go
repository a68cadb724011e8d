package supervisor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/troupe-train/troupe/checkpoint"
	"github.com/troupe-train/troupe/data"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/stage"
)

// Sampling says how the next token is drawn.
type Sampling struct {
	// Temperature divides the logits; 0 takes the most likely token.
	Temperature float64
	// TopK, if not 0, draws from the most likely tokens only.
	TopK int
	Seed uint64
}

// Check says whether the values are legal.
func (s Sampling) Check() error {
	if !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0) {
		return fmt.Errorf("temperature %v; legal is 0 and more", s.Temperature)
	}
	if s.TopK < 0 {
		return fmt.Errorf("top-k %d; legal is 1 and more, and 0 for all tokens", s.TopK)
	}
	return nil
}

// Generator writes text with the model of a checkpoint.
type Generator struct {
	model     *model.Model
	tokenizer data.Tokenizer
	step      int64
	skipped   []error
	account   *device.Account
	device    device.Device
	stream    device.Stream
	weights   *stage.Weights
	chunk     *stage.Chunk
}

// OpenGenerator loads the newest complete checkpoint in dir, which may also be one checkpoint itself.
func OpenGenerator(dir string) (*Generator, error) {
	c, err := checkpoint.Open(dir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	meta := c.Meta()
	job, err := plan.Parse(c.Path(), []byte(meta.Job))
	if err != nil {
		return nil, fmt.Errorf("job in %s: %w", c.Path(), err)
	}
	g := &Generator{step: meta.Step, skipped: c.Skipped(), account: device.NewAccount("generator", 0)}
	if g.tokenizer, err = data.ParseTokenizer([]byte(meta.Tokenizer)); err != nil {
		return nil, fmt.Errorf("vocabulary in %s: %w", c.Path(), err)
	}
	if g.model, err = BuildModel(job, g.tokenizer.Size()); err != nil {
		return nil, err
	}
	g.device = cpu.New(cpu.Options{Float: device.F32})
	if g.stream, err = g.device.OpenStream("generator", budgets(0, 1)[0]); err != nil {
		return nil, errors.Join(err, g.device.Close())
	}
	if err := g.load(c); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Generator) load(c *checkpoint.Checkpoint) error {
	all := plan.Range{Hi: len(g.model.Layers)}
	var err error
	if g.weights, err = stage.NewWeights(g.device, g.device.Float(), g.account, g.model, all); err != nil {
		return err
	}
	g.chunk = stage.NewChunk(g.weights, all)
	return g.do(func(k device.Kernels) error {
		for i, b := range g.model.Buckets() {
			for j, p := range b.Params {
				values := make([]float32, p.Len())
				if err := c.Read(p.Name, checkpoint.Weight, 0, p.Len(), values); err != nil {
					return err
				}
				k.Upload(g.weights.Vector(i).Sub(b.Offsets[j], p.Len()), float32Bytes(values))
			}
		}
		return nil
	})
}

// do runs work on the stream and waits for it.
func (g *Generator) do(work func(device.Kernels) error) error {
	done := make(chan error, 1)
	g.stream.Do(work, func(err error) { done <- err })
	return <-done
}

// Step is the number of steps that the model was trained.
func (g *Generator) Step() int64 { return g.step }

// Skipped says why newer checkpoints were not loaded.
func (g *Generator) Skipped() []error { return g.skipped }

// Close gives everything back.
func (g *Generator) Close() error {
	err := g.stream.Close()
	if g.weights != nil {
		g.weights.Release()
	}
	return errors.Join(err, g.device.Close())
}

// Generate appends tokens tokens to prompt, one at a time, and gives the text of each to emit.
// The same seed gives the same text. Only the last context of the model is looked at.
func (g *Generator) Generate(prompt []byte, tokens int, s Sampling, emit func([]byte) error) error {
	if err := s.Check(); err != nil {
		return err
	}
	window := g.tokenizer.Encode(nil, prompt)
	if len(window) == 0 {
		window = g.tokenizer.Encode(nil, []byte{data.Separator})
	}
	for i := range tokens {
		if n := len(window) - g.model.Context; n > 0 {
			window = window[n:]
		}
		logits, err := g.logits(window)
		if err != nil {
			return err
		}
		next := s.draw(logits, random.Uniform(random.Key(s.Seed, random.String("generate")), uint64(i)))
		window = append(window, next)
		text, err := g.tokenizer.Decode(nil, []int32{next})
		if err != nil {
			return err
		}
		if err := emit(text); err != nil {
			return err
		}
	}
	return nil
}

// logits are those of the token that follows the window.
func (g *Generator) logits(window []int32) ([]float64, error) {
	n, vocab := len(window), g.model.Vocab
	out := make([]byte, 4*vocab)
	err := g.do(func(k device.Kernels) error {
		ids, err := g.device.Alloc(g.account, device.Messages, device.I32, n)
		if err != nil {
			return err
		}
		defer ids.Release()
		raw := make([]byte, 0, 4*n)
		for _, t := range window {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(t))
		}
		k.Upload(ids, raw)
		logits, err := g.chunk.ForwardTo(k, "logits", stage.MicroBatch{Rows: 1, Context: n, Tokens: ids}, device.Slice{})
		if err != nil {
			return err
		}
		defer logits.Release()
		k.Download(out, logits.Sub((n-1)*vocab, vocab))
		return nil
	})
	if err != nil {
		return nil, err
	}
	values := make([]float64, vocab)
	for i, f := range bytesFloat32(out) {
		values[i] = float64(f)
	}
	return values, nil
}

// draw picks a token by a number u in [0, 1).
func (s Sampling) draw(logits []float64, u float64) int32 {
	order := make([]int32, len(logits))
	for i := range order {
		order[i] = int32(i)
	}
	sort.SliceStable(order, func(i, j int) bool { return logits[order[i]] > logits[order[j]] })
	if s.Temperature == 0 {
		return order[0]
	}
	if s.TopK > 0 {
		order = order[:min(s.TopK, len(order))]
	}
	weights := make([]float64, len(order))
	var sum float64
	for i, t := range order {
		weights[i] = math.Exp((logits[t] - logits[order[0]]) / s.Temperature)
		sum += weights[i]
	}
	at := u * sum
	for i, w := range weights {
		if at < w {
			return order[i]
		}
		at -= w
	}
	return order[len(order)-1]
}
