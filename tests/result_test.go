package tests

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// keys are those of the object that train and launch end with. Programs read it: a key that is renamed or
// left out breaks them.
const keys = "actors bubble checkpoint grad_norm_last job loss_first loss_last moved_bytes outside_kernels parameters " +
	"peak_bytes recoveries restarts resumes seconds sent_bytes shifts skipped_steps steps steps_run stopped tokens tokens_per_second validation weights_sha256"

const (
	actorKeys = "busy_seconds id node peak_bytes restarts role"
	sentKeys  = "activation control gather gradient reduce"
	planKeys  = "actors bubble flops parameters peak_bytes recovery_bytes sent_bytes shares stages step_seconds tflops_per_device"
)

// TestJSON freezes the keys of what commands print with --json, and looks at the values.
func TestJSON(t *testing.T) {
	layout := []string{"layout.pipeline=2", "layout.data=2"}
	for _, c := range []struct {
		alone bool // a stage alone measures the time outside of kernels, and moves no activations
		args  []string
	}{
		{true, command(t, "train", nil, "--json")},
		{false, command(t, "train", layout, "--json")},
		{true, command(t, "train", nil, "--json", "--stop-at", "1")},
		{false, command(t, "launch", layout, "--json", "--nodes", "2")},
	} {
		args := c.args
		p := start(t, "troupe", args...)
		r := p.result()
		o := object(t, p.last())
		compare(t, args, o, keys)
		compare(t, args, o["sent_bytes"], sentKeys)
		compare(t, args, o["moved_bytes"], sentKeys)
		for _, a := range o["actors"].([]any) {
			compare(t, args, a, actorKeys)
		}
		if len(r.Actors) != len(r.PeakBytes) {
			t.Errorf("%d actors and %d peaks", len(r.Actors), len(r.PeakBytes))
		}
		for _, a := range r.Actors {
			if a.PeakBytes <= 0 || a.PeakBytes != r.PeakBytes[a.ID] || a.BusySeconds <= 0 || !strings.HasPrefix(a.Node, "node ") && a.Node != "trainer node" {
				t.Errorf("%v: actor %+v, peak %d", args, a, r.PeakBytes[a.ID])
			}
		}
		if want := r.Steps * 10 * 8; r.Tokens != want || r.StepsRun != r.Steps || r.Seconds <= 0 || r.TokensPerSecond <= 0 || len(r.WeightsSHA256) != 64 {
			t.Errorf("%v: %d tokens, want %d; %+v", args, r.Tokens, want, r)
		}
		if c.alone != (r.Outside != nil) || c.alone && (*r.Outside < 0 || *r.Outside >= 1) {
			t.Errorf("%v: outside_kernels %v", args, o["outside_kernels"])
		}
		moved := args[0] == "launch"
		if s := r.SentBytes; s["control"] == 0 || s["reduce"] == 0 || s["gather"] == 0 || (s["activation"] > 0) == c.alone || (s["gradient"] > 0) == c.alone {
			t.Errorf("%v: sent %v", args, s)
		}
		if (r.MovedBytes["control"] > 0) != moved {
			t.Errorf("%v: moved %v", args, r.MovedBytes)
		}
	}
	p := start(t, "troupe", command(t, "plan", layout, "--json")...)
	if code := p.end(); code != 0 {
		t.Fatalf("plan: exit status %d, %q", code, p.said)
	}
	o := object(t, p.last())
	compare(t, "plan", o, planKeys)
	compare(t, "plan", o["stages"].([]any)[0], "end first")
	compare(t, "plan", o["actors"].([]any)[0], "id node")
}

func object(t testing.TB, b []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return o
}

func compare(t testing.TB, what any, o any, want string) {
	t.Helper()
	if got := strings.Join(slices.Sorted(maps.Keys(o.(map[string]any))), " "); got != want {
		t.Errorf("%v: keys\n%s, want\n%s", what, got, want)
	}
}

// TestPlain: without --json the result is for people, and it ends where a line ends.
func TestPlain(t *testing.T) {
	for _, name := range []string{"train", "plan"} {
		p := start(t, "troupe", command(t, name, []string{"train.steps=2"})...)
		if code := p.end(); code != 0 {
			t.Fatalf("%s: exit status %d, %q", name, code, p.said)
		}
		out := p.out.String()
		if !strings.HasSuffix(out, "\n") || strings.HasSuffix(out, "\n\n") || strings.ContainsAny(out, "\r\x1b") || strings.ContainsAny(strings.Join(p.said, ""), "\r\x1b") {
			t.Errorf("%s prints\n%q\nand says\n%q", name, out, p.said)
		}
		if name == "train" && !has(out, "small: 2 steps, loss 5.", "validation loss", "weights sha256 ") {
			t.Errorf("train prints\n%s", out)
		}
	}
}
