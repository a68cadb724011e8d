package tests

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/supervisor"
)

var update = flag.Bool("update", false, "write the generated files anew instead of comparing them")

// smallJob is a GPT of 7 layers, embedding and head included, that trains 20 steps in a blink. A batch is five micro-batches. Its nodes may be
// silent for long, as tests run on machines that have much else to do.
const smallJob = `
name: small
model:  {kind: gpt, layers: 5, width: 16, heads: 2, context: 8, vocab: bytes}
data:   {text: none, match: "*.txt"}
train:
  steps: 20
  batch: 10
  micro_batch: 2
  threads: 1
  optimizer: {kind: adamw, lr: 5e-3, warmup: 3, decay: cosine, weight_decay: 0.1, clip: 1.0}
  evaluate: {every: 10, batch: 6}
supervisor: {suspect: 25}
`

// smallLayers are its layers.
const smallLayers = 7

// texts is a folder of made-up text, the same in every test.
func texts(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	words := strings.Fields("actor stage shard step message bits the of and a owns sends waits for commits in order")
	for file := range 3 {
		var b strings.Builder
		for i := range 600 {
			b.WriteString(words[random.Block(1, uint64(file), uint64(i))[0]%uint32(len(words))])
			b.WriteString([]string{" ", " ", ", ", ".\n"}[random.Block(2, uint64(file), uint64(i))[0]%4])
		}
		write(t, filepath.Join(dir, fmt.Sprintf("%d.txt", file)), b.String())
	}
	return dir
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// job is the small job with keys set.
func job(t testing.TB, set ...string) *plan.Job {
	t.Helper()
	j, err := plan.Parse("small.yaml", []byte(smallJob))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append([]string{"data.text=" + texts(t)}, set...) {
		if err := j.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Validate(); err != nil {
		t.Fatal(err)
	}
	return j
}

// train runs the small job in this process.
func train(t testing.TB, set []string, opts ...supervisor.Option) *supervisor.Result {
	t.Helper()
	r, err := supervisor.Run(context.Background(), job(t, set...), opts...)
	if err != nil {
		t.Fatalf("%v: %v", set, err)
	}
	return r
}

// outcome is what the layout must not change: weights, losses and norms.
func outcome(r *supervisor.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "weights %s\n", r.WeightsSHA256)
	if r.StepsRun > 0 {
		fmt.Fprintf(&b, "loss %x, norm %x\n", *r.LossLast, *r.GradNormLast)
	}
	for _, p := range r.Validation {
		fmt.Fprintf(&b, "validation after step %d: %x\n", p.Step, p.Loss)
	}
	return b.String()
}

// same compares a run with another one that must have come to the same.
func same(t testing.TB, what any, got, want *supervisor.Result) {
	t.Helper()
	if g, w := outcome(got), outcome(want); g != w {
		t.Errorf("%v gives\n%swant\n%s", what, g, w)
	}
}

// with is set and more.
func with(set []string, more ...string) []string { return append(slices.Clip(set), more...) }
