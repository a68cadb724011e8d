package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
)

// lives is a trainer of two stages with what it is told and what it does, as text.
type lives struct {
	t       *testing.T
	plan    *plan.Plan
	trainer *Trainer
}

func newLives(t *testing.T, options ...TrainerOption) *lives {
	t.Helper()
	j := plan.Defaults()
	j.Name, j.Data.Text = "lives", "text"
	j.Model.Layers, j.Model.Width, j.Model.Heads, j.Model.Context = 2, 8, 2, 4
	j.Train.Steps, j.Train.Batch, j.Train.MicroBatch, j.Train.Evaluate.Batch = 4, 1, 1, 0
	j.Layout.Pipeline = 2
	m, err := model.Build("gpt", model.Config{Layers: 2, Width: 8, Heads: 2, Context: 4, Vocab: 8})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(j, m, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &lives{t, p, NewTrainer(p, Rounds{Until: 4}, options...)}
}

// do handles an event and says what came of it that concerns lives.
func (l *lives) do(e machine.Event) string {
	var lines []string
	var launched []machine.Launch
	for _, x := range slices.Clone(l.trainer.Handle(e)) {
		switch x := x.(type) {
		case machine.Send:
			if n := x.Message.Name; n.Value.Kind == plan.Start {
				lines = append(lines, fmt.Sprintf("start %s at %s (%d)", n.Round, n.To, n.Incarnation))
			}
		case machine.Announce:
			lines = append(lines, fmt.Sprintf("%s lives %d in %s", x.PeerIs.Peer, x.PeerIs.Incarnation, x.PeerIs.Round))
		case machine.Launch:
			launched = append(launched, x)
		}
	}
	for _, x := range launched {
		c := machine.Completed{Round: x.Round, Op: x.Index}
		for range x.Op.Writes {
			c.Out = append(c.Out, machine.Blob(nil))
		}
		if x.Op.Kind == plan.Finish {
			lines = append(lines, "finish")
			continue // the test completes it
		}
		lines = append(lines, l.do(c))
	}
	return strings.Join(slices.DeleteFunc(lines, func(s string) bool { return s == "" }), "\n")
}

// report lets actors report a round.
func (l *lives) report(r plan.Round, except ...plan.ActorID) string {
	out := ""
	for i, a := range l.plan.Actors {
		if a.ID != plan.Trainer && !slices.Contains(except, a.ID) {
			out += l.do(machine.Arrived{Message: machine.Message{
				Name:    machine.Name{Job: "lives", Round: r, From: a.ID, To: plan.Trainer, Value: plan.Value{Kind: plan.Report, Index: i, Piece: -1}},
				Payload: machine.Blob("report"),
			}})
		}
	}
	return out
}

// finish completes the end of a round.
func (l *lives) finish(r plan.Round) string {
	ops := l.plan.Program(plan.Trainer, r.Phase).Ops
	return l.do(machine.Completed{Round: r, Op: len(ops) - 1, Out: []machine.Payload{nil}})
}

func (l *lives) want(got, want string) {
	l.t.Helper()
	if got != strings.TrimSpace(want) {
		l.t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

var (
	init0  = plan.Round{Phase: plan.InitPhase}
	train0 = plan.Round{Phase: plan.TrainPhase}
)

// TestRestartedInTime: a new life recovers into the round that is open, though its last one has reported in it.
func TestRestartedInTime(t *testing.T) {
	l := newLives(t)
	stage, shard := plan.StageID(0, 0), plan.ShardID(1, 0)
	l.do(machine.Begin{})
	l.want(l.do(machine.Restarted{Actor: shard, Incarnation: 1}), "shard.p1.d0 lives 1 in init step 0\nstart init step 0 at shard.p1.d0 (0)")
	l.want(l.report(init0, stage, shard), "")
	l.report(init0, stage) // of the old life of the shard: refused
	if w := l.trainer.Waiting(); w.From != stage && w.From != shard {
		t.Errorf("the trainer is %s", w)
	}
}

// TestRestartedTooLate: when a round has begun to end, a new life recovers into the next one; everybody else, and it
// too, is told of all lives.
func TestRestartedTooLate(t *testing.T) {
	l := newLives(t)
	stage, shard := plan.StageID(0, 0), plan.ShardID(1, 0)
	l.do(machine.Begin{})
	l.want(l.report(init0), "finish")
	l.want(l.do(machine.Restarted{Actor: stage, Incarnation: 1}), "")
	l.want(l.do(machine.Restarted{Actor: stage, Incarnation: 2}), "")
	l.want(l.finish(init0), `
stage.p0.d0 lives 2 in train step 0
start recover step 0 at stage.p0.d0 (0)
start train step 0 at stage.p0.d0 (0)
start train step 0 at stage.p1.d0 (0)
start train step 0 at shard.p0.d0 (0)
start train step 0 at shard.p1.d0 (0)
start train step 0 at mirror.p0.d0 (0)
start train step 0 at mirror.p1.d0 (0)`)
	// A second one, and the same one told again.
	l.want(l.do(machine.Restarted{Actor: shard, Incarnation: 1}), `
stage.p0.d0 lives 2 in train step 0
shard.p1.d0 lives 1 in train step 0
start recover step 0 at shard.p1.d0 (0)
start train step 0 at shard.p1.d0 (0)`)
	l.want(l.do(machine.Restarted{Actor: shard, Incarnation: 1}), "")
	l.want(l.do(machine.Restarted{Actor: stage, Incarnation: 1}), "")
}

// TestReopen: a new life of the trainer opens the open round again, announces itself, and leads those that are not
// in their first life through Recover, which those of them that have caught up ignore.
func TestReopen(t *testing.T) {
	stage := plan.StageID(1, 0)
	l := newLives(t, Reopen(3, train0, map[plan.ActorID]int{stage: 2, plan.Trainer: 3}))
	l.want(l.do(machine.Begin{}), `
trainer lives 3 in train step 0
stage.p1.d0 lives 2 in train step 0
start train step 0 at stage.p0.d0 (3)
start recover step 0 at stage.p1.d0 (3)
start train step 0 at stage.p1.d0 (3)
start train step 0 at shard.p0.d0 (3)
start train step 0 at shard.p1.d0 (3)
start train step 0 at mirror.p0.d0 (3)
start train step 0 at mirror.p1.d0 (3)`)
}
