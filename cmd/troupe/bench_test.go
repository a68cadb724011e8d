package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// command runs the binary's command line and returns what it prints.
func command(args ...string) (string, error) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

// TestBench: the subcommands print a table, or one JSON object.
func TestBench(t *testing.T) {
	step := strings.Fields("bench step --layers 1 --width 8 --heads 2 --context 4 --batch 2 --vocab 10 --threads 1 --steps 2 --warmup 1")
	gemm := strings.Fields("bench gemm --shape 4x5x6 --shape 7x8x9:bt --threads 1 --repeat 1")
	kernels := strings.Fields("bench kernels --width 8 --heads 2 --context 4 --rows 2 --vocab 10 --repeat 1")
	for _, c := range []struct {
		args  []string
		table string
		keys  string
	}{
		{gemm, "GFLOP/s", "level results"},
		{kernels, "copy GB/s", "width results"},
		{append(gemm[:len(gemm):len(gemm)], "--type", "bf16"), "4x5x6:bf16", "level results"},
		{append(kernels[:len(kernels):len(kernels)], "--type", "bf16"), "tensors of bf16", "type results"},
		{append(step[:len(step):len(step)], "--precision", "bf16"), "tokens/s", "precision"},
		{step, "tokens/s", "step_seconds tokens_per_second gflops peak_gflops peak_share outside_kernels parameters"},
	} {
		text, err := command(c.args...)
		if err != nil || !strings.Contains(text, c.table) {
			t.Errorf("%v: %v\n%s", c.args, err, text)
		}
		text, err = command(append(c.args, "--json")...)
		var object map[string]any
		if err != nil || json.Unmarshal([]byte(text), &object) != nil {
			t.Errorf("%v --json: %v\n%s", c.args, err, text)
		}
		for _, key := range strings.Fields(c.keys) {
			if _, ok := object[key]; !ok {
				t.Errorf("%v --json has no key %q: %s", c.args, key, text)
			}
		}
	}
}

// TestBenchUsage: what is not legal is the fault of who typed it.
func TestBenchUsage(t *testing.T) {
	for _, text := range []string{
		"bench gem", "bench gemm 5", "bench gemm --shape 4x5", "bench gemm --threads 0", "bench gemm --repeat 0", "bench gemm --level sse9",
		"bench kernels --rows 0", "bench kernels --type f16", "bench gemm --type f64", "bench step --precision f16", "bench kernels --heads 5", "bench kernels --threads -1", "bench kernels --level sse9",
		"bench gemm --shape=", "bench gemm --shape 4x5x6:at:at", "bench gemm --shape 4x5x6:bf16 --type f32", "bench gemm --threads 99999",
		"bench gemm --shape 1048576x1048576x1048576", "bench kernels --rows 1000000 --context 1000000", "bench kernels --width 9223372036854775807",
		"bench step --layers 4000 --width 16384 --heads 1", "bench step --batch 1000000", "bench step --pipeline 0", "bench step --data -1", "bench step --schedule=",
		"bench step --heads 5", "bench step --steps 0", "bench step --level sse9", "bench step --micro-batch 9",
	} {
		if out, err := command(strings.Fields(text)...); !errors.As(err, new(usageError)) {
			t.Errorf("%s: %v\n%s", text, err, out)
		} else if strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "train.") || strings.Contains(err.Error(), "model.") || strings.Contains(err.Error(), "layout.") {
			t.Errorf("%s: the error names keys of a job, or is of several lines: %v", text, err)
		}
	}
}
