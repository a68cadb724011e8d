package plan

import (
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"
)

const goodJob = `
model:  {kind: gpt, layers: 6, width: 384, heads: 6, context: 256, vocab: bytes}
data:   {text: "$GOROOT/src", match: "*.go"}
train:  {steps: 200, batch: 32, micro_batch: 4, optimizer: {kind: adamw, lr: 1e-3, warmup: 20, decay: cosine, weight_decay: 0.1, clip: 1.0}, seed: 1}
layout: {pipeline: 2, schedule: 1f1b}
save:   {dir: runs/gosrc, every: 50}
`

func TestParse(t *testing.T) {
	j, err := Parse("runs/go src.yaml", []byte(goodJob))
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.Name = "go-src"
	want.Model = Model{Kind: "gpt", Layers: 6, Width: 384, Heads: 6, Context: 256, Vocab: "bytes"}
	want.Data.Text, want.Data.Match = "$GOROOT/src", "*.go"
	want.Train.Steps, want.Train.Batch, want.Train.MicroBatch = 200, 32, 4
	o := &want.Train.Optimizer
	o.LR, o.Warmup, o.Decay, o.WeightDecay = 1e-3, 20, "cosine", 0.1
	want.Layout.Pipeline = 2
	want.Save = Save{Dir: "runs/gosrc", Every: 50}
	if !reflect.DeepEqual(j, want) {
		t.Fatalf("parsed\n%+v, want\n%+v", j, want)
	}
	if err := j.Validate(); err != nil {
		t.Fatal(err)
	}
	if j.Train.Optimizer.MinLR != 1e-3/10 {
		t.Fatalf("min_lr of a decay is %g, want a tenth of lr", j.Train.Optimizer.MinLR)
	}
	if err := j.Validate(); err != nil {
		t.Fatalf("a valid job is refused the second time: %v", err)
	}
}

// TestRoundTrip: a job that is written as YAML is read as the same job, zeros included.
func TestRoundTrip(t *testing.T) {
	j, err := Parse("a.yaml", []byte(goodJob+"name: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	j.Layout.Stages, j.Layout.Shares = []int{8, 0}, []int{3, 5}
	j.Data.Holdout, j.Train.Optimizer.Clip, j.Train.Evaluate.Batch = 0, 0, 0
	j.Data.Text = "a: b # no comment\n'\"$"
	data, err := yaml.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse("b.yaml", data)
	if err != nil {
		t.Fatalf("%v in\n%s", err, data)
	}
	if !reflect.DeepEqual(j, back) {
		t.Fatalf("read\n%+v, wrote\n%+v", back, j)
	}
}

// TestKeys freezes the keys of a job file: an option more is a decision, not an accident.
func TestKeys(t *testing.T) {
	want, err := os.ReadFile("testdata/keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(Keys(), "\n") + "\n"; got != string(want) {
		t.Fatalf("the keys of a job are now\n%sand testdata/keys.txt says\n%s", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"unknown section", "layut:\n  pipeline: 2\n", `job.yaml:1: the job has no key "layut"; did you mean layout?`},
		{"unknown key", "model:\n  layers: 2\n  widht: 3\n", `job.yaml:3: model has no key "widht"; did you mean model.width?`},
		{"key of another section", "model: {pipeline: 2}\n", `job.yaml:1: model has no key "pipeline"; did you mean layout.pipeline?`},
		{"nothing near", "model: {xyzzy: 2}\n", `job.yaml:1: model has no key "xyzzy"; its keys: kind, layers, width, heads, context, vocab, dropout`},
		{"nested", "train:\n  optimizer:\n    lrr: 1\n", `job.yaml:3: train.optimizer has no key "lrr"; did you mean train.optimizer.lr?`},
		{"twice", "train:\n  batch: 1\n  batch: 2\n", `job.yaml:3: mapping key "batch" already defined`},
		{"text for a number", "train: {batch: many}\n", `job.yaml:1: train.batch is "many"; a whole number`},
		{"quoted number", "train: {batch: \"4\"}\n", `job.yaml:1: train.batch is the text "4"; a whole number`},
		{"fraction", "train: {batch: 1.5}\n", `train.batch is "1.5"; a whole number`},
		{"too long", "train: {batch: 99999999999999999999}\n", `train.batch is "99999999999999999999"; a whole number of at most 64 bits is legal`},
		{"negative seed", "train: {seed: -1}\n", `train.seed is "-1"; a whole number from 0`},
		{"not a number", "model: {dropout: .nan}\n", `model.dropout is ".nan"; a finite number is legal`},
		{"nan", "model: {dropout: nan}\n", `model.dropout is "nan"; a finite number is legal`},
		{"infinite", "train: {optimizer: {lr: .inf}}\n", `train.optimizer.lr is ".inf"; a finite number is legal`},
		{"too large", "train: {optimizer: {lr: 1e999}}\n", `train.optimizer.lr is "1e999"; a finite number is legal`},
		{"empty value", "train:\n  batch:\n", `job.yaml:2: train.batch is empty; a whole number`},
		{"section for a number", "train: {batch: {size: 3}}\n", `train.batch is a section; a whole number`},
		{"number for a section", "train: 3\n", `job.yaml:1: train is 3; a section with the keys steps, batch`},
		{"list for a section", "- train\n", `job.yaml:1: the job is a list; a section with the keys name, model`},
		{"number for a list", "layout: {stages: 3}\n", `layout.stages is 3; a list of whole numbers like [2, 3] is legal`},
		{"text in a list", "layout: {stages: [2, x]}\n", `layout.stages[1] is "x"; a whole number`},
		{"anchor", "train: {batch: &a 3}\n", `an anchor or alias, which job files do not have`},
		{"tag", "train: {batch: !!int 3}\n", `a tag, which job files do not have`},
		{"two documents", "name: a\n---\nname: b\n", `more than one YAML document`},
		{"broken", "train: {batch: 3\n", `job.yaml:1: `},
		{"tab", "train:\n\tbatch: 3\n", `job.yaml:2: `},
		{"long", strings.Repeat("#", 1<<17), `the job file has 131072 bytes; at most 65536 are legal`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("job.yaml", []byte(c.yaml))
			wantLine(t, err, c.want)
		})
	}
}

func TestSet(t *testing.T) {
	j := Defaults()
	for _, s := range []string{"layout.pipeline=3", "layout.stages=[1, 2,0]", "data.text=a=b c", "train.optimizer.lr= 1e-3 ", "train.seed=18446744073709551615", "layout.schedule=gpipe", "name=x"} {
		if err := j.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	want := Defaults()
	want.Name, want.Data.Text, want.Train.Optimizer.LR, want.Train.Seed = "x", "a=b c", 1e-3, math.MaxUint64
	want.Layout.Pipeline, want.Layout.Stages, want.Layout.Schedule = 3, []int{1, 2, 0}, "gpipe"
	if !reflect.DeepEqual(j, want) {
		t.Fatalf("set\n%+v, want\n%+v", j, want)
	}
	for _, c := range []struct{ set, want string }{
		{"layout.pipelines=2", `--set "layout.pipelines=2": layout has no key "pipelines"; did you mean layout.pipeline?`},
		{"pipeline=2", `the job has no key "pipeline"; did you mean layout.pipeline?`},
		{"layout=2", `layout is a section; set one of its keys: data, tensor`},
		{"layout.pipeline", `has no =; key=value is legal`},
		{"layout.pipeline.x=1", `layout.pipeline is a key, not a section`},
		{"layout.pipeline=two", `layout.pipeline is "two"; a whole number`},
		{"layout.pipeline=", `layout.pipeline is ""; a whole number`},
		{"layout.stages=1,x", `layout.stages[1] is "x"; a whole number`},
		{"model.dropout=NaN", `model.dropout is "NaN"; a finite number`},
		{"=1", `the job has no key ""`},
	} {
		wantLine(t, j.Set(c.set), c.want)
	}
}

func TestValidateRefuses(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string
	}{
		{[]string{"model.layers=0"}, "model.layers: is missing, or 0; 1 to 4096 are legal, the nearest is 1"},
		{[]string{"model.layers=-3"}, "model.layers: is -3; 1 to 4096 are legal, the nearest is 1"},
		{[]string{"model.heads=5"}, "model.heads: is 5, which does not divide model.width 384; the nearest legal heads are 4 and 6"},
		{[]string{"model.heads=385"}, "model.heads: is 385; 1 to 384 are legal"},
		{[]string{"model.width=9223372036854775807"}, "model.width: is 9223372036854775807; 1 to 1048576 are legal"},
		{[]string{"model.width=1048576", "model.heads=1", "model.layers=4096"}, "model.layers: 4096 with model.width 1048576 makes about"},
		{[]string{"model.context=16777216", "model.heads=1"}, "train.micro_batch: 4 with model.context 16777216"},
		{[]string{"model.dropout=1"}, "model.dropout: is 1; numbers from 0 up to but not including 1 are legal"},
		{[]string{"model.kind=llama", "model.width=9", "model.heads=3"},
			`model.heads: 3 heads of model.width 9 have 3 elements each; a llama turns pairs of them, so the width of a head must be even`},
		{[]string{"model.kind=gtp"}, `model.kind: is "gtp"; legal: gpt, llama; did you mean gpt?`},
		{[]string{"model.vocab="}, "model.vocab: is empty"},
		{[]string{"data.text="}, "data.text: is missing, or empty"},
		{[]string{"data.match="}, "data.match: is empty"},
		{[]string{"data.holdout=-0.1"}, "data.holdout: is -0.1"},
		{[]string{"data.holdout=0"}, "train.evaluate.batch: is 32, but data.holdout is 0"},
		{[]string{"data.limit_bytes=-1"}, "data.limit_bytes: is -1; 0 to"},
		{[]string{"train.steps=0"}, "train.steps: is missing, or 0; 1 to"},
		{[]string{"train.batch=0"}, "train.batch: is missing, or 0; 1 to"},
		{[]string{"train.micro_batch=0"}, "train.micro_batch: is missing, or 0; 1 to"},
		{[]string{"train.micro_batch=33"}, "train.micro_batch: is 33, more than train.batch 32; 1 to 32 are legal"},
		{[]string{"train.batch=1048576", "train.micro_batch=1"}, "train.micro_batch: is 1, which cuts 1048576 sequences into 1048576 micro-batches; at most 16384 micro-batches are legal, so train.micro_batch 64 or more"},
		{[]string{"train.accumulate=sequential"}, `train.accumulate: is "sequential"; legal: tree`},
		{[]string{"train.threads=-1"}, "train.threads: is -1"},
		{[]string{"train.memory_limit=-1"}, "train.memory_limit: is -1"},
		{[]string{"train.evaluate.batch=0", "train.evaluate.every=5"}, "train.evaluate.every: is 5, but train.evaluate.batch is 0"},
		{[]string{"train.optimizer.kind=adam"}, `train.optimizer.kind: is "adam"; legal: adamw, sgd; did you mean adamw?`},
		{[]string{"train.optimizer.lr=-1"}, "train.optimizer.lr: is -1; numbers from 0 up are legal"},
		{[]string{"train.optimizer.decay=cosin"}, `train.optimizer.decay: is "cosin"; legal: none, cosine, linear; did you mean cosine?`},
		{[]string{"train.optimizer.beta2=1"}, "train.optimizer.beta2: is 1"},
		{[]string{"train.optimizer.epsilon=0"}, "train.optimizer.epsilon: is 0; numbers above 0 are legal"},
		{[]string{"train.optimizer.clip=-1"}, "train.optimizer.clip: is -1"},
		{[]string{"train.optimizer.momentum=0.9"}, "train.optimizer.momentum: is 0.9, but adamw has none"},
		{[]string{"train.optimizer.min_lr=1"}, "train.optimizer.min_lr: is 1; 0 to 0.001, which is lr, are legal"},
		{[]string{"train.optimizer.min_lr=0.0001", "train.optimizer.decay=none"}, "train.optimizer.min_lr: is 0.0001, but decay is none"},
		{[]string{"layout.data=0"}, "layout.data: is 0; 1 to 1024 are legal"},
		{[]string{"layout.data=12"}, "layout.data: is 12, but train.batch 32 in micro-batches of train.micro_batch 4 is 8 micro-batches, less than one for each data rank; the nearest legal: layout.data 8 or train.batch 45 or train.micro_batch 2"},
		{[]string{"layout.data=33", "train.micro_batch=1"}, "the nearest legal: layout.data 32 or train.batch 33"},
		{[]string{"layout.data=1024", "layout.pipeline=5", "train.micro_batch=1", "train.batch=1024"}, "layout.data: is 1024 with layout.pipeline 5: 5120 stages; at most 4096 are legal, so layout.data up to 819"},
		{[]string{"layout.tensor=2"}, "layout.tensor: is 2, which is not supported yet; 1 is legal"},
		{[]string{"layout.chunks=2"}, "layout.chunks: is 2, which is not supported yet; 1 is legal"},
		{[]string{"layout.sequence=0"}, "layout.sequence: is 0, which is not supported yet; 1 is legal"},
		{[]string{"layout.expert=8"}, "layout.expert: is 8, which is not supported yet; 1 is legal"},
		{[]string{"layout.zero=3"}, "layout.zero: is 3, which is not supported yet; 1 is legal"},
		{[]string{"layout.schedule=1f2b"}, `layout.schedule: is "1f2b"; legal: 1f1b, gpipe; did you mean 1f1b?`},
		{[]string{"layout.stages=2,3,3"}, "layout.stages: has 3 ranks, but layout.pipeline is 2; a list of 2 numbers or layout.pipeline 3 is legal"},
		{[]string{"layout.data=2", "layout.shares=5,4"}, "layout.shares: adds up to 9, but train.batch 32 in micro-batches of train.micro_batch 4 is 8 micro-batches; shares that add up to 8 are legal, such as 5,3"},
		{[]string{"layout.data=2", "layout.shares=12,4"}, "such as 6,2"},
		{[]string{"layout.data=3", "layout.shares=5,3"}, "layout.shares: has 2 numbers, but layout.data is 3; a list of 3 numbers or layout.data 2 is legal"},
		{[]string{"layout.data=2", "layout.shares=8,0"}, "layout.shares[1]: is 0; 1 to"},
		{[]string{"supervisor.slow.policy=shift"}, "supervisor.slow.policy: is shift, but layout.data is 1"},
		{[]string{"supervisor.slow.policy=shift", "layout.data=8"}, "supervisor.slow.policy: is shift, but layout.data is 8 and a step has 8 micro-batches: none can be shifted"},
		{[]string{"layout.stages=9,-1"}, "layout.stages[1]: is -1; 0 to"},
		{[]string{"save.dir="}, "save.every: is 50, but save.dir is empty"},
		{[]string{"save.dir=", "save.every=0", "save.keep=2"}, "save.keep: is 2, but save.dir is empty"},
		{[]string{"save.every=-1"}, "save.every: is -1"},
		{[]string{"supervisor.heartbeat=0"}, "supervisor.heartbeat: is 0; numbers above 0 are legal"},
		{[]string{"supervisor.heartbeat=1e-9"}, "supervisor.heartbeat: is 1e-09 seconds; 0.001 to 1e+06 are legal"},
		{[]string{"supervisor.suspect=0"}, "supervisor.suspect: is 0; 1 to"},
		{[]string{"supervisor.deadline=0.5"}, "supervisor.deadline: is 0.5 seconds, less than the 5 heartbeats of 0.2 seconds"},
		{[]string{"supervisor.restarts=-1"}, "supervisor.restarts: is -1; 0 to"},
		{[]string{"supervisor.window=0"}, "supervisor.window: is 0 seconds; 0.001 to"},
		{[]string{"supervisor.backoff=-1"}, "supervisor.backoff: is -1 seconds; 0 to"},
		{[]string{"supervisor.resumes=-1"}, "supervisor.resumes: is -1; 0 to"},
		{[]string{"supervisor.bad_batch.policy=skp"}, `supervisor.bad_batch.policy: is "skp"; legal: stop, skip, rollback; did you mean skip?`},
		{[]string{"supervisor.bad_batch.spike=-1"}, "supervisor.bad_batch.spike: is -1; numbers from 0 up"},
		{[]string{"supervisor.bad_batch.window=1"}, "supervisor.bad_batch.window: is 1; 2 to"},
		{[]string{"supervisor.bad_batch.back=0"}, "supervisor.bad_batch.back: is 0; 1 to"},
		{[]string{"supervisor.bad_batch.policy=rollback", "save.every=0"}, "there is no checkpoint to go back to"},
		{[]string{"supervisor.slow.policy=on"}, `supervisor.slow.policy: is "on"; legal: off, warn, move`},
		{[]string{"supervisor.slow.factor=1"}, "supervisor.slow.factor: is 1; numbers above 1"},
		{[]string{"supervisor.slow.steps=0"}, "supervisor.slow.steps: is 0; 1 to"},
		{[]string{"cluster.spares=-1"}, "cluster.spares: is -1; 0 to"},
		{[]string{"name=a.b"}, `name: is "a.b"; 1 to 64 letters`},
	} {
		j, err := Parse("job.yaml", []byte(goodJob))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.set {
			if err := j.Set(s); err != nil {
				t.Fatal(err)
			}
		}
		wantLine(t, j.Validate(), c.want)
	}
}

// TestDataRanks: every legal choice that the message about data ranks names is legal, and the next
// one is not.
func TestDataRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := Defaults()
		j.Train.Batch = rapid.IntRange(1, 40).Draw(t, "batch")
		j.Train.MicroBatch = rapid.IntRange(1, j.Train.Batch).Draw(t, "micro")
		j.Layout.Data = rapid.IntRange(2, 50).Draw(t, "data")
		d := j.Layout.Data
		legal := func(batch, micro, data int) bool { return (batch+micro-1)/micro >= data }
		err := j.checkSums()
		if (err == nil) != legal(j.Train.Batch, j.Train.MicroBatch, d) {
			t.Fatalf("batch %d, micro %d, data %d: %v", j.Train.Batch, j.Train.MicroBatch, d, err)
		}
		if err == nil {
			return
		}
		if n := (d-1)*j.Train.MicroBatch + 1; !legal(n, j.Train.MicroBatch, d) || legal(n-1, j.Train.MicroBatch, d) {
			t.Fatalf("batch %d is not the least legal", n)
		}
		if n := (j.Train.Batch - 1) / (d - 1); n > 0 && !legal(j.Train.Batch, n, d) || legal(j.Train.Batch, n+1, d) {
			t.Fatalf("micro-batch %d is not the largest legal", n)
		}
	})
}

// wantLine checks that err is a *JobError of one line that contains want.
func wantLine(t *testing.T, err error, want string) {
	t.Helper()
	var j *JobError
	if !errors.As(err, &j) {
		t.Errorf("the error is %v (%T), want a JobError with %q", err, err, want)
		return
	}
	if s := err.Error(); !strings.Contains(s, want) || strings.ContainsAny(s, "\n\r") {
		t.Errorf("the error is %q, want one line with %q", s, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(goodJob))
	f.Add([]byte("model:\n  layers: 2\n# c\ntrain: {batch: 3, optimizer: {lr: .5}}\nlayout: {stages: [1, 2]}"))
	f.Add([]byte(strings.Replace(goodJob, "layout: {", "layout: {data: 2, shares: [5, 3], ", 1)))
	f.Add([]byte("a: &b {c: *b}\n<<: x\n? [1]\n: !!str |\n  text\n---\n..."))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := Parse("job.yaml", data)
		if err == nil {
			err = j.Validate()
		}
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("the error has several lines: %q", err)
			}
			return
		}
		written, err := yaml.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse("job.yaml", written)
		if err != nil {
			t.Fatalf("%v in\n%s", err, written)
		}
		if len(back.Layout.Stages) == 0 {
			back.Layout.Stages = j.Layout.Stages
		}
		if len(back.Layout.Shares) == 0 {
			back.Layout.Shares = j.Layout.Shares
		}
		if !reflect.DeepEqual(back, j) {
			t.Fatalf("read\n%+v, wrote\n%+v", back, j)
		}
	})
}
