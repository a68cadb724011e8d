package fault_test

import (
	"strings"
	"testing"

	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
)

var lines = []string{
	"kill stage.p1.d0 at forward micro-batch 3 of train step 7",
	"kill shard.p0.d1 at number 12 of train step 1",
	"kill trainer at receive value report of train step 2",
	"panic mirror.p0.d0 at hold of train step 0",
	"hang stage.p0.d0 at backward-weight of train step 4",
	"hang stage.p0.d0 at backward-weight of train step 4 for 2s",
	"slow stage.p0.d0 at forward of train step 10 for 4s factor 3",
	"kill-node 2 at stage.p1.d0 send value activation micro-batch 1 of train step 3",
	"pause-node 1 at trainer of evaluate step 2 for 10s",
	"fill-disk 0 at trainer finish of snapshot step 2 for 1s",
	"jump-clock 1 at trainer of train step 2 for -1h0m0s",
	"partition 1,2 at trainer decide of train step 5 for 4s",
	"shift 5,1,2 at trainer feed of train step 1",
	"drop gradient from stage.p1.d0 to shard.p1.d0 at micro-batch 4 bucket 2 of train step 3",
	"duplicate any from any to trainer at any of train step 3 times 7",
	"delay activation-gradient from any to any at number 2 of train step 3 for 50ms",
	"reorder parameters from any to stage.p0.d0 at any of init step 0",
	"corrupt state from mirror.p0.d0 to shard.p0.d0 at any of recover step 3",
}

// TestText: what is written is what is read.
func TestText(t *testing.T) {
	text := strings.Join(lines, "\n") + "\n"
	faults, err := fault.Parse("# a comment\n\n" + text)
	if err != nil {
		t.Fatal(err)
	}
	if got := fault.Format(faults); got != text {
		t.Errorf("written\n%s, read from\n%s", got, text)
	}
}

func TestRefused(t *testing.T) {
	for line, want := range map[string]string{
		"explode stage.p0.d0 at of train step 1":                  `there is no fault "explode"; legal: kill, panic`,
		"kill stage.p0 at forward of train step 1":                `"stage.p0" is no actor`,
		"kill stage.p0.d0 at forward of test step 1":              `there is no phase "test"`,
		"kill stage.p0.d0 at forward of train step -1":            "a step is a whole number from 0 up",
		"kill stage.p0.d0 at forward of train step 1 for 1s":      `"for" means nothing for kill`,
		"kill stage.p0.d0 at fly of train step 1":                 `"fly" stands where value`,
		"kill-node 1 at forward of train step 1":                  "the point must name one",
		"pause-node 1 at trainer of train step 1":                 "pause-node needs a time",
		"pause-node x at trainer of train step 1 for 1s":          `"x" is no number`,
		"slow stage.p0.d0 at of train step 1":                     "slow needs a factor",
		"slow stage.p0.d0 at of train step 1 factor NaN":          "1 to 1e+06 are legal",
		"slow stage.p0.d0 at of train step 1 factor 1e30":         "1 to 1e+06 are legal",
		"slow stage.p0.d0 at of train step 1 factor 0.5":          "1 to 1e+06 are legal",
		"slow stage.p0.d0 at of train step 1 factor 1e999":        "the factor is no number",
		"kill stage.p0.d0 at forward of train step 1 number 3":    `"number" belongs to the point, and stands before of: at ... number 3 of train step 1`,
		"delay any from any to any at of train step 1 for -1s":    "times above 0 are legal",
		"drop activations from any to any at of train step 1":     `"activations" is no kind of value`,
		"drop activation to any from any at of train step 1":      `"to" stands where "from" is due`,
		"shift 5,x at trainer of train step 1":                    `"x" where a number from 0`,
		"shift 5,03 at trainer of train step 1":                   `not written as "5,3"`,
		"shift 5,3 at of train step 1":                            "the point must name one",
		"kill stage.p0.d0 forward":                                `"forward" stands where "at" is due`,
		"drop any from any to any at any of train step 1 times 0": "0 times; 1 and more",
		"hang stage.p0.d0 at any of train step 1 for 5":           `"5" is no time; 300ms`,
		"kill stage.p0.d0 at":                                     "is due",
	} {
		if _, err := fault.Parse(line); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q in one line", line, err, want)
		}
	}
}

// TestMatcher: a fault strikes at its point, as often as it should, and not when the program is walked again.
func TestMatcher(t *testing.T) {
	faults, err := fault.Parse(`kill stage.p1.d0 at forward micro-batch 1 of train step 7
kill stage.p1.d0 at number 2 of train step 7
kill-node 1 at stage.p1.d0 receive value activation of train step 7
drop activation from any to stage.p1.d0 at micro-batch 1 of train step 7 times 2`)
	if err != nil {
		t.Fatal(err)
	}
	m := fault.NewMatcher(faults)
	r := plan.Round{Step: 7, Phase: plan.TrainPhase}
	activation := func(micro int) plan.Value { return plan.Value{Kind: plan.Activation, Index: 1, Lo: micro, Piece: -1} }
	ops := []*plan.Op{
		{Kind: plan.Receive, Writes: []plan.Value{activation(0)}},
		{Kind: plan.Forward, Micro: 0},
		{Kind: plan.Forward, Micro: 1},
	}
	var struck []string
	for range 2 {
		for i, op := range ops {
			for _, f := range m.At("stage.p1.d0", r, op) {
				struck = append(struck, string(rune('0'+i))+" "+f.Kind.String())
			}
			if due := m.At("stage.p1.d1", r, op); len(due) > 0 {
				t.Errorf("another actor is struck: %v", due)
			}
		}
	}
	if got := strings.Join(struck, ", "); got != "0 kill-node, 2 kill, 2 kill" {
		t.Errorf("struck: %s", got)
	}
	drops := 0
	for range 3 {
		drops += len(m.Message("stage.p0.d0", "stage.p1.d0", r, activation(1)))
	}
	if drops != 2 || len(m.Message("stage.p0.d0", "stage.p1.d0", r, activation(0))) != 0 {
		t.Errorf("%d messages are dropped", drops)
	}
	if m.Struck() != 4 {
		t.Errorf("%d faults have struck", m.Struck())
	}
}

func FuzzParse(f *testing.F) {
	for _, l := range lines {
		f.Add(l)
	}
	f.Fuzz(func(t *testing.T, text string) {
		faults, err := fault.Parse(text)
		if err != nil {
			return
		}
		again, err := fault.Parse(fault.Format(faults))
		if err != nil || fault.Format(again) != fault.Format(faults) {
			t.Fatalf("%q is written as %q, which is read as %v, %v", text, fault.Format(faults), again, err)
		}
	})
}
