package tests

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/supervisor"
)

// TestResumeElsewhere: some steps, a stop, and the rest in another layout are all the steps at once.
func TestResumeElsewhere(t *testing.T) {
	set := []string{"model.dropout=0.1"}
	want := train(t, set)
	for _, c := range []struct {
		stop          int64
		first, second []string
	}{
		{10, []string{"layout.pipeline=1"}, []string{"layout.pipeline=1"}},
		{10, []string{"layout.pipeline=3", "layout.data=2"}, []string{"layout.pipeline=2", "layout.data=5", "layout.schedule=gpipe"}},
		{10, []string{"layout.data=4"}, []string{"layout.pipeline=9"}},
		{7, []string{"layout.pipeline=2", "train.threads=2"}, []string{"layout.data=3"}},
	} {
		name := fmt.Sprintf("%v, stop at %d, %v", c.first, c.stop, c.second)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			save := "save.dir=" + t.TempDir()
			half := train(t, with(set, append(c.first, save)...), supervisor.WithStopAt(c.stop))
			if half.Steps != c.stop || !strings.HasSuffix(half.Checkpoint, fmt.Sprintf("step-%08d", c.stop)) {
				t.Fatalf("stopped at step %d with checkpoint %q", half.Steps, half.Checkpoint)
			}
			rest := train(t, with(set, append(c.second, save)...), supervisor.WithResume())
			if rest.StepsRun != 20-c.stop {
				t.Errorf("%d steps were run after the stop, want %d", rest.StepsRun, 20-c.stop)
			}
			// Evaluations: one more where it was stopped and begun again, else those of the whole run.
			if g, w := end(rest), end(want); g != w {
				t.Errorf("got\n%swant\n%s", g, w)
			}
		})
	}
}

// TestPrecision: bf16 learns what f32 does, with less memory; what it saves is float32 and can be resumed in either.
func TestPrecision(t *testing.T) {
	save := "save.dir=" + t.TempDir()
	set := []string{"layout.pipeline=2", "train.steps=60", "model.width=64", "model.context=16"}
	half := with(set, "train.precision=bf16")
	full, stored := train(t, set), train(t, half)
	lossOf := func(r *supervisor.Result) float64 { return r.Validation[len(r.Validation)-1].Loss }
	began := full.Validation[0].Loss
	if d := lossOf(stored) - lossOf(full); stored.WeightsSHA256 == full.WeightsSHA256 || math.Abs(d) > 0.05*(began-lossOf(full)) {
		t.Errorf("bf16 comes from %g to %g, f32 to %g", began, lossOf(stored), lossOf(full))
	}
	for id, bytes := range stored.PeakBytes {
		if strings.HasPrefix(string(id), "stage") && bytes >= full.PeakBytes[id] {
			t.Errorf("%s holds %d bytes in bf16 and %d in f32", id, bytes, full.PeakBytes[id])
		}
	}
	if a, b := stored.SentBytes["activation"], full.SentBytes["activation"]; 2*a != b {
		t.Errorf("%d bytes of activations are sent in bf16, %d in f32", a, b)
	}
	train(t, with(half, save), supervisor.WithStopAt(30))
	if r := train(t, with(half, save), supervisor.WithResume()); r.WeightsSHA256 != stored.WeightsSHA256 {
		t.Errorf("resumed in bf16: weights %s, want %s", r.WeightsSHA256, stored.WeightsSHA256)
	}
	train(t, with(half, save), supervisor.WithStopAt(30), supervisor.WithOverwrite())
	if r := train(t, with(set, save), supervisor.WithResume()); r.Steps != 60 || math.Abs(lossOf(r)-lossOf(full)) > 0.05*(began-lossOf(full)) {
		t.Errorf("resumed in f32: step %d, loss %g", r.Steps, lossOf(r))
	}
}

// end is the outcome without the evaluations before the last.
func end(r *supervisor.Result) string {
	x := *r
	x.Validation = x.Validation[len(x.Validation)-1:]
	return outcome(&x)
}

// longJob takes some seconds, so that a signal comes in its middle.
var longJob = []string{"train.steps=150", "train.evaluate.every=0", "train.evaluate.batch=0"}

// TestInterrupt: a run that is told to stop in its middle keeps what it has done, and another command in
// another layout does the rest.
func TestInterrupt(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	want := train(t, longJob)
	one := func(layout ...string) []string { return layout }
	over := func(nodes int, layout ...string) []string {
		return append([]string{"launch", fmt.Sprintf("--nodes=%d", nodes)}, layout...)
	}
	for _, c := range []struct{ first, second []string }{
		{one("train", "layout.pipeline=2"), over(2, "layout.pipeline=3", "layout.data=2")},
		{over(2, "layout.data=2"), one("train", "layout.pipeline=4", "layout.schedule=gpipe")},
		{over(3, "layout.pipeline=3"), over(2, "layout.data=3")},
	} {
		t.Run(fmt.Sprint(c.first, c.second), func(t *testing.T) {
			save := "save.dir=" + t.TempDir()
			args := func(c []string, more ...string) []string {
				name, flags, keys := c[0], []string{"--json"}, []string{save}
				for _, x := range c[1:] {
					if strings.HasPrefix(x, "--") {
						flags = append(flags, x)
					} else {
						keys = append(keys, x)
					}
				}
				return command(t, name, with(longJob, keys...), append(flags, more...)...)
			}
			p := start(t, "troupe", args(c.first)...)
			p.await("step 5/150")
			p.signal(interrupt)
			half := p.result()
			if !half.Stopped || half.Steps < 5 || half.Steps >= 150 {
				t.Fatalf("stopped %v after %d steps", half.Stopped, half.Steps)
			}
			p = start(t, "troupe", args(c.second, "--resume")...)
			p.await(fmt.Sprintf("resuming at train step %d from", half.Steps))
			got := p.result()
			if got.Stopped || got.StepsRun != 150-half.Steps {
				t.Errorf("the rest was %d steps, stopped %v", got.StepsRun, got.Stopped)
			}
			same(t, c.second, got, want)
		})
	}
}

// TestCheckpointsAreNotLost: whatever is refused leaves the checkpoints as they were.
func TestCheckpointsAreNotLost(t *testing.T) {
	dir := t.TempDir()
	save := "save.dir=" + dir
	train(t, []string{save, "train.steps=4", "save.every=2"})
	before := digest(t, dir)
	empty := filepath.Join(t.TempDir(), "none")
	taken := listen(t)
	for _, c := range []struct {
		name  string
		args  []string
		code  int
		parts []string
	}{
		{"afresh over a run", command(t, "train", []string{save}), 1, []string{"not empty", "step-00000004", "--resume", "--overwrite"}},
		{"another width", command(t, "train", []string{save, "model.width=32"}, "--resume"), 1, []string{"embed.tokens", "[256 16]", "[256 32]"}},
		{"another depth", command(t, "train", []string{save, "model.layers=6"}, "--resume"), 1, []string{"block5"}},
		{"another optimizer", command(t, "train", []string{save, "train.optimizer.kind=sgd"}, "--resume"), 1, []string{"adamw", "sgd"}},
		{"another batch", command(t, "train", []string{save, "train.batch=12"}, "--resume"), 1, []string{"train.batch", "10", "12"}},
		{"nothing to resume", command(t, "train", []string{"save.dir=" + empty}, "--resume"), 1, []string{"no complete checkpoint", empty}},
		{"nowhere to resume", command(t, "train", nil, "--resume"), 2, []string{"save.dir"}},
		{"both", command(t, "train", []string{save}, "--resume", "--overwrite"), 2, []string{"--resume and --overwrite"}},
		{"overwrite and a plan that does not add up", command(t, "train", []string{save, "layout.pipeline=2", "layout.stages=3,3"}, "--overwrite"), 2, []string{"layout.stages", "6", "7"}},
		{"overwrite without data", command(t, "train", []string{save, "data.text=" + empty}, "--overwrite"), 1, []string{empty}},
		{"overwrite and a port that is taken", command(t, "launch", []string{save}, "--overwrite", "--listen", taken), 1, []string{taken, "in use"}},
		{"overwrite and nodes that do not come", command(t, "launch", []string{save, "supervisor.join=0.2"}, "--overwrite", "--external"), 1, []string{"0/2 nodes joined"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			start(t, "troupe", c.args...).fails(c.code, c.parts...)
			if after := digest(t, dir); after != before {
				t.Errorf("the folder was\n%sand is\n%s", before, after)
			}
			if _, err := os.Stat(empty); err == nil {
				t.Error("a folder was made for a run that was refused")
			}
		})
	}
	t.Run("overwrite", func(t *testing.T) {
		want := train(t, []string{"train.steps=1"})
		same(t, "overwrite", train(t, []string{save, "train.steps=1"}, supervisor.WithOverwrite()), want)
		if got := names(t, dir); !slices.Equal(got, []string{"journal.log", "step-00000001"}) {
			t.Errorf("the folder holds %q", got)
		}
	})
}

// listen takes a port.
func listen(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// digest is the names and hashes of all files below a folder.
func digest(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %x\n", path, sha256.Sum256(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestDamagedCheckpoint: a file that is cut short or has one bit wrong is never trained from. The one before is, and
// the run says so.
func TestDamagedCheckpoint(t *testing.T) {
	want := train(t, []string{"train.steps=6"})
	for _, c := range []struct {
		name   string
		damage func(b []byte) []byte
	}{
		{"cut short", func(b []byte) []byte { return b[:len(b)/2] }},
		{"empty", func([]byte) []byte { return nil }},
		{"one bit", func(b []byte) []byte { b[len(b)-5] ^= 4; return b }},
	} {
		for _, file := range []string{"manifest.json", "shard-00000.safetensors"} {
			t.Run(c.name+" "+file, func(t *testing.T) {
				dir := t.TempDir()
				set := []string{"train.steps=6", "save.dir=" + dir, "save.every=2"}
				train(t, set, supervisor.WithStopAt(4))
				path := filepath.Join(dir, "step-00000004", file)
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				write(t, path, string(c.damage(bytes.Clone(b))))

				p := start(t, "troupe", "checkpoint", "check", dir)
				p.fails(1, "not as they were written")
				if !has(p.out.String(), path) {
					t.Errorf("the check does not name %s:\n%s", path, p.out.String())
				}
				p = start(t, "troupe", command(t, "train", set, "--resume", "--json")...)
				got := p.result()
				if !has(strings.Join(p.said, "\n"), "not resumed from", "step-00000004", "resuming at train step 2 from") {
					t.Errorf("it says\n%s", strings.Join(p.said, "\n"))
				}
				if g, w := end(got), end(want); g != w {
					t.Errorf("got\n%swant\n%s", g, w)
				}
			})
		}
	}
}

// TestGenerate: a checkpoint writes text, and the same text whatever layout made it.
func TestGenerate(t *testing.T) {
	var texts []string
	for _, layout := range []string{"layout.pipeline=1", "layout.pipeline=3"} {
		dir := t.TempDir()
		train(t, []string{"save.dir=" + dir, layout})
		p := start(t, "troupe", "generate", dir, "--prompt", "actor", "--tokens", "40", "--seed", "3")
		if p.end() != 0 || !has(strings.Join(p.said, "\n"), "model of step 20") {
			t.Fatalf("%s", strings.Join(p.said, "\n"))
		}
		texts = append(texts, p.out.String())
	}
	if !strings.HasPrefix(texts[0], "actor") || len(texts[0]) != len("actor")+40+1 || texts[0] != texts[1] {
		t.Errorf("the texts are %q", texts)
	}
}

// TestStoppedBeforeItBegins: a stop is as good at any time.
func TestStoppedBeforeItBegins(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := supervisor.Run(ctx, job(t)); err != nil || !r.Stopped || r.Steps == 20 {
		t.Errorf("run: %+v, %v", r, err)
	}
	p := start(t, "troupe", command(t, "launch", nil, "--external")...)
	p.await("start node 2")
	p.signal(interrupt)
	if !has(p.await("troupe: "), "stopping") {
		t.Error("the signal is not answered")
	}
	p.said = nil
	p.fails(1, "interrupted before train step 0 began")
}
