package machine_test

import (
	"strings"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
)

// TestOtherShares: a walker knows the program of a step by other shares from the first message of it, which may come
// before the Start; it refuses what does not fit the plan, and messages of the same step by other shares.
func TestOtherShares(t *testing.T) {
	job := plan.Defaults()
	job.Name, job.Data.Text = "job", "none"
	job.Model.Layers, job.Model.Width, job.Model.Heads, job.Model.Context = 2, 8, 2, 4
	job.Train.Steps, job.Train.Batch, job.Train.MicroBatch, job.Layout.Data, job.Layout.Pipeline = 2, 6, 1, 2, 2
	m, err := model.Build("gpt", model.Config{Layers: 2, Width: 8, Heads: 2, Context: 4, Vocab: 8})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(job, m, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := plan.StageID(0, 0)
	w := machine.NewWalker(p, id)
	at := func(shares plan.Shares) plan.Round { return plan.Round{Phase: plan.TrainPhase, Shares: shares} }
	// handle returns the micro-batches that are launched, or why the message is refused.
	handle := func(v plan.Value, r plan.Round) (launched []int, refused string) {
		live := map[string]int{}
		msg := machine.Message{Name: machine.Name{Job: "job", Round: r, From: plan.Trainer, To: id, Value: v}}
		if v.Kind != plan.Start {
			msg.Payload = newCounted(v.String(), live)
		}
		for _, e := range w.Handle(machine.Arrived{Message: msg}) {
			switch e := e.(type) {
			case machine.Launch:
				launched = append(launched, e.Op.Micro)
			case machine.Refused:
				refused = e.Reason
			}
		}
		return launched, refused
	}
	start := plan.Value{Kind: plan.Start, Piece: -1}
	for _, c := range []struct {
		value    plan.Value
		round    plan.Round
		launched int    // the micro-batch; -1: none
		refused  string // empty: it is taken
	}{
		{tokens(4), at("4,1"), -1, "give 5 micro-batches to 2 data ranks; the plan has 6"},
		{tokens(4), at("5,1,0"), -1, "leave data rank 2 without"},
		{tokens(5), at("5,1"), -1, "does not receive it"},
		{tokens(4), at("5,1"), -1, ""},
		{tokens(0), at("5,1"), -1, ""},
		{tokens(1), at(""), -1, "no more than one round is kept"},
		{start, at("5,1"), 0, ""},
		{tokens(1), at(""), -1, "by the shares of the plan, and train step 0 is run by 5,1"},
		{tokens(1), at("4,2"), -1, "by the shares 4,2, and train step 0 is run by 5,1"},
		{start, at("4,2"), -1, "has not finished"},
		{tokens(1), at("5,1"), 1, ""},
		{tokens(0), plan.Round{Phase: plan.EvaluatePhase, Step: 1, Shares: "5,1"}, -1, "only training steps have shares"},
	} {
		launched, refused := handle(c.value, c.round)
		if !strings.Contains(refused, c.refused) || (refused == "") != (c.refused == "") {
			t.Errorf("%s by %q: refused %q, want %q", c.value, c.round.Shares, refused, c.refused)
		}
		if n := len(launched); n > 1 || n == 1 && launched[0] != c.launched || n == 0 && c.launched >= 0 {
			t.Errorf("%s by %q launches %v, want %d", c.value, c.round.Shares, launched, c.launched)
		}
	}
}
