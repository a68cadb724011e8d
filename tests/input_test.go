package tests

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestBadInput: what a user gets wrong is one line that says what was given, what is legal and where, before
// anything has started. The exit status is 2 for what was typed or written, and 1 for the state of the world.
func TestBadInput(t *testing.T) {
	train := func(set ...string) []string { return command(t, "train", set) }
	none := filepath.Join(t.TempDir(), "none")
	empty := t.TempDir()
	short := t.TempDir()
	write(t, filepath.Join(short, "a.txt"), "short")
	blank := t.TempDir()
	write(t, filepath.Join(blank, "a.txt"), "")
	file := func(text string) []string {
		path := filepath.Join(t.TempDir(), "job.yaml")
		write(t, path, text)
		return []string{"train", path}
	}
	taken := listen(t)
	notAList, cut := filepath.Join(t.TempDir(), "faults.yaml"), filepath.Join(t.TempDir(), "v.json")
	write(t, notAList, "kill: everybody")
	colon := filepath.Join(t.TempDir(), "colon.yaml")
	write(t, colon, "- kill: stage.p0.d0")
	write(t, cut, `{"version": 1, "kind`)
	for _, c := range []struct {
		name  string
		args  []string
		code  int
		parts []string
	}{
		{"unknown command", []string{"tran"}, 2, []string{`"tran"`, "train, vocabulary"}},
		{"unknown command of checkpoint", []string{"checkpoint", "chek", none}, 2, []string{`"chek"`, "check, list"}},
		{"unknown help", []string{"help", "tran"}, 2, []string{`"tran"`, "train"}},
		{"unknown flag", append(train(), "--resum"), 2, []string{"--resum", "troupe train --help"}},
		{"flag without a number", append(train(), "--stop-at", "soon"), 2, []string{"\"soon\" for \"--stop-at\"; legal is a whole number; see"}},
		{"no job", []string{"train"}, 2, []string{"0 arguments", "one job file", "troupe train JOB.yaml"}},
		{"two jobs", []string{"plan", "a", "b"}, 2, []string{"2 arguments", "one job file"}},
		{"chaos without a job", []string{"chaos"}, 2, []string{"0 arguments", "one job file"}},
		{"chaos on no nodes", command(t, "chaos", nil, "--nodes", "0"), 2, []string{"--nodes 0; legal is 1 and more"}},
		{"chaos at an actor that is not there", command(t, "chaos", nil, "--fault", faultFile(t, "kill stage.p7.d0 at forward of train step 1")), 2, []string{"--fault ", "no actor stage.p7.d0"}},
		{"stop before the start", append(train(), "--stop-at", "-3"), 2, []string{"--stop-at -3", "1 and more"}},

		{"missing job file", []string{"train", none}, 2, []string{none, "no such file"}},
		{"job file that is a folder", []string{"train", empty}, 2, []string{empty, "is a directory"}},
		{"no YAML", file("model: {kind: gpt"), 2, []string{"job.yaml"}},
		{"unknown key", file("model: {layer: 3}"), 2, []string{"job.yaml:1", `"layer"`, "model.layers"}},
		{"unknown section", file("modle: {}"), 2, []string{`"modle"`, "did you mean model"}},
		{"key given twice", file("name: a\nname: b"), 2, []string{"job.yaml:2", "name"}},
		{"text for a number", file("train: {steps: many}"), 2, []string{"train.steps", "many", "whole number"}},
		{"a list that does not end", file("model: ["), 2, []string{"job.yaml:1: is not YAML: "}},
		{"a fault that is no text", append(train(), "--fault", colon), 2, []string{colon + ": entry 1 is no line of text"}},
		{"faults that are no list", append(train(), "--fault", notAList), 2, []string{notAList + ":1: is no YAML list of faults"}},
		{"nothing at all", file(""), 2, []string{"model.layers: is missing, or 0; 1 to"}},
		{"no batch", file("model: {layers: 1, width: 2, heads: 1, context: 2}\ndata: {text: a}\ntrain: {steps: 1}"), 2, []string{"train.batch: is missing, or 0"}},
		{"no text", file("model: {layers: 1, width: 2, heads: 1, context: 2}"), 2, []string{"data.text: is missing, or empty"}},
		{"a pattern that is none", train("data.match=["), 2, []string{"data.match: is \"[\", which is no pattern"}},
		{"a vocabulary that is none", train("model.vocab=bits"), 2, []string{"model.vocab: is \"bits\"", "\"bytes\""}},
		{"a vocabulary that is cut", train("model.vocab=" + cut), 1, []string{"not a vocabulary: it is no JSON of one at byte"}},

		{"set without a value", train("model.layers"), 2, []string{`"model.layers"`, "no ="}},
		{"set an unknown key", train("model.depth=3"), 2, []string{`"depth"`, "its keys: kind, layers"}},
		{"set a section", train("model=3"), 2, []string{"model is a section"}},
		{"set half a layer", train("model.layers=1.5"), 2, []string{"1.5", "whole number"}},

		{"no layers", train("model.layers=0"), 2, []string{"model.layers", "0", "the nearest is 1"}},
		{"heads that do not divide", train("model.heads=3"), 2, []string{"heads", "3", "width 16", "2 and 4"}},
		{"more data ranks than micro-batches", train("layout.data=6"), 2, []string{"layout.data", "6", "5 micro-batches", "layout.data 5"}},
		{"micro-batch over the batch", train("train.micro_batch=11"), 2, []string{"11", "train.batch 10"}},
		{"stages that do not add up", train("layout.pipeline=2", "layout.stages=3,3"), 2, []string{"6", "7"}},
		{"stages without ranks", train("layout.pipeline=2", "layout.stages=3,3,1"), 2, []string{"3 ranks", "layout.pipeline is 2"}},
		{"unknown schedule", train("layout.schedule=zb"), 2, []string{"zb", "1f1b", "gpipe"}},
		{"a degree that is not supported", train("layout.tensor=2"), 2, []string{"layout.tensor", "2", "1 is legal"}},
		{"a number that is none", train("train.optimizer.lr=NaN"), 2, []string{"NaN", "finite"}},

		{"missing data", train("data.text=" + none), 1, []string{none, "no such file or folder"}},
		{"data of no files", train("data.text=" + empty), 1, []string{empty, "0 files", "*.txt"}},
		{"empty data", train("data.text=" + blank), 1, []string{blank}},
		{"text shorter than the context", train("data.text=" + short), 1, []string{short, "tokens for training", "model.context", "9"}},
		{"unset variable", train("data.text=$TROUPE_TESTS_UNSET/a"), 1, []string{"$TROUPE_TESTS_UNSET", "not set"}},
		{"missing vocabulary", train("model.vocab=" + none), 1, []string{none, "bytes"}},
		{"folder that cannot be made", train("save.dir=" + filepath.Join(short, "a.txt", "b")), 1, []string{"save.dir", "a.txt"}},
		{"memory for nobody", train("train.memory_limit=1000"), 2, []string{"troupe: train.memory_limit: is 1000 bytes", "stage.p0.d0 ", "the least for this job is ", "or change "}},
		{"memory for most", train("train.memory_limit=50000", "layout.pipeline=2"), 2, []string{"train.memory_limit: is 50000 bytes", "stage.p1.d0 ", "shard.p0.d0 ", "the least for this job is "}},

		{"no nodes", command(t, "launch", nil, "--nodes", "0"), 2, []string{"--nodes 0", "1 and more"}},
		{"less than no nodes", command(t, "launch", nil, "--nodes", "-1"), 2, []string{"--nodes -1"}},
		{"no address", command(t, "launch", nil, "--listen", "here"), 2, []string{"--listen", `"here"`, "host:port"}},
		{"no port", command(t, "launch", nil, "--listen", "127.0.0.1:77777"), 2, []string{"77777", "65535"}},
		{"port that is taken", command(t, "launch", nil, "--listen", taken), 1, []string{taken, "already in use"}},
		{"plan for less than no nodes", command(t, "plan", nil, "--nodes", "-1"), 2, []string{"--nodes -1"}},
		{"plan for no speed", command(t, "plan", nil, "--gflops", "0"), 2, []string{"--gflops 0"}},

		{"join nothing", []string{"node"}, 2, []string{"--join"}},
		{"join no address", []string{"node", "--join", "here"}, 2, []string{"--join", `"here"`}},
		{"join without a token", []string{"node", "--join", "127.0.0.1:1"}, 2, []string{"TROUPE_TOKEN"}},
		{"join with half a token", []string{"node", "--join", "127.0.0.1:1"}, 2, []string{"TROUPE_TOKEN is no token", "NAME.SECRET"}},
		{"join as a negative number", []string{"node", "--join", "127.0.0.1:1", "--number", "-1"}, 2, []string{"--number -1"}},
		{"join in no time", []string{"node", "--join", "127.0.0.1:1", "--wait", "0s"}, 2, []string{"--wait 0s"}},

		{"generate from nothing", []string{"generate", none}, 1, []string{none}},
		{"generate less than nothing", []string{"generate", none, "--tokens", "-1"}, 2, []string{"--tokens -1"}},
		{"generate at a negative temperature", []string{"generate", none, "--temperature", "-1"}, 2, []string{"temperature -1"}},
		{"generate from less than no tokens", []string{"generate", none, "--top-k", "-1"}, 2, []string{"top-k -1"}},
		{"list nothing", []string{"checkpoint", "list", none}, 1, []string{"there is no folder " + none}},
		{"check nothing", []string{"checkpoint", "check", none}, 1, []string{none}},
		{"vocabulary for nobody", command(t, "vocabulary", nil), 2, []string{"--out"}},
		{"vocabulary of a byte", command(t, "vocabulary", nil, "--size", "1", "--out", none), 2, []string{"1 tokens", "257"}},
		{"vocabulary over a file", command(t, "vocabulary", nil, "--out", filepath.Join(short, "a.txt")), 2, []string{"a.txt", "already", "--overwrite"}},
		{"vocabulary to nowhere", command(t, "vocabulary", nil, "--out", filepath.Join(none, "v")), 1, []string{"no folder " + none}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var env []string
			if c.name == "join with half a token" {
				env = []string{"TROUPE_TOKEN=small."}
			}
			p := startWith(t, env, "troupe", c.args...)
			p.fails(c.code, c.parts...)
			for _, inside := range []string{"strconv", "actors: ", "supervisor: ", "json: "} {
				if strings.Contains(p.said[len(p.said)-1], inside) {
					t.Errorf("it says %q", p.said)
				}
			}
			// What is found before the start is all that is said.
			if len(p.said) != 1 {
				t.Errorf("it says\n%s", strings.Join(p.said, "\n"))
			}
			if p.out.Len() > 0 {
				t.Errorf("it prints\n%s", p.out.String())
			}
		})
	}
}

// TestHelp: every command has help with an example that is a command.
func TestHelp(t *testing.T) {
	for _, c := range []string{"", "train", "launch", "node", "plan", "generate", "vocabulary", "checkpoint", "checkpoint check", "checkpoint list", "help"} {
		p := start(t, "troupe", append(strings.Fields(c), "--help")...)
		if code := p.end(); code != 0 || len(p.said) > 0 {
			t.Errorf("troupe %s --help: exit status %d, %q", c, code, p.said)
		}
		if out := p.out.String(); !has(out, "Usage:", "Examples:\n  ", "troupe "+c) {
			t.Errorf("troupe %s --help:\n%s", c, out)
		}
	}
}
