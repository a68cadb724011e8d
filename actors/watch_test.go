package actors

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

func TestSilence(t *testing.T) {
	const interval = 200 * time.Millisecond
	now := time.Unix(0, 0)
	s := newSilence(interval, 5)
	s.hear(1, now)
	s.hear(2, now)
	for step := 1; step <= 5; step++ {
		now = now.Add(interval)
		s.hear(1, now)
		if lost := s.check(now); len(lost) > 0 {
			t.Fatalf("lost %v after %d heartbeats", lost, step)
		}
	}
	now = now.Add(interval)
	s.hear(1, now)
	lost := s.check(now)
	if d, ok := lost[2]; !ok || len(lost) != 1 || d != 6*interval {
		t.Fatalf("lost %v, want node 2 after %s", lost, 6*interval)
	}
	now = now.Add(interval)
	s.hear(1, now)
	if lost := s.check(now); len(lost) > 0 {
		t.Fatalf("lost %v a second time", lost)
	}
	s.forget(1)
	now = now.Add(time.Hour)
	if lost := s.check(now); len(lost) > 0 {
		t.Fatalf("lost %v, who was forgotten", lost)
	}
}

// TestOwnPauseIsNotTheirSilence: a process that was stopped for a while does not take it for the end of
// all others, and still finds who is silent afterwards.
func TestOwnPauseIsNotTheirSilence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const interval = 100 * time.Millisecond
		now := time.Unix(0, 0)
		s := newSilence(interval, 5)
		s.hear(1, now)
		s.check(now)
		for range rapid.IntRange(0, 5).Draw(t, "pauses") {
			now = now.Add(time.Duration(rapid.IntRange(1, 100000).Draw(t, "ms")) * time.Millisecond)
			if lost := s.check(now); len(lost) > 0 {
				t.Fatalf("lost %v", lost)
			}
			s.hear(1, now) // it was there all the time
		}
		for range 6 {
			now = now.Add(interval)
			if lost := s.check(now); len(lost) > 0 {
				return
			}
		}
		t.Fatalf("silence is not found after a pause")
	})
}

// TestClockGoesBack: who is silent, and that nothing moves, is found in its time when the clock has jumped forward or back, before
// or after somebody was heard, and not before.
func TestClockGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const interval = 100 * time.Millisecond
		now := time.Unix(1e6, 0)
		s := newSilence(interval, 5)
		stalls := stall{deadline: 5 * interval, interval: interval}
		all := []Stats{waiting(stage0, machine.Wait{Op: "forward"}, 1)}
		jumped := false
		s.hear(1, now)
		s.check(now)
		stalls.look(all, now)
		for i := range 30 {
			if i < 15 {
				s.hear(1, now)
				all[0].Progress++
			}
			if i < 16 && rapid.Bool().Draw(t, "jumps") {
				now = now.Add(time.Duration(rapid.IntRange(-100000, 100000).Draw(t, "ms")) * time.Millisecond)
				jumped = true
			}
			lost, stalled := s.check(now), stalls.look(all, now)
			if i < 18 && (len(lost) > 0 || stalled) {
				t.Fatalf("look %d: lost %v, stalled %v", i, lost, stalled)
			}
			if i == 24 && jumped {
				if _, watched := s.heard[1]; watched || stalls.told == 0 {
					t.Fatalf("silence was found: %v; stalls: %d", !watched, stalls.told)
				}
			}
			now = now.Add(interval)
		}
	})
}

func waiting(actor plan.ActorID, w machine.Wait, progress uint64) Stats {
	return Stats{Actor: actor, Wait: w, Progress: progress}
}

func TestStall(t *testing.T) {
	now := time.Unix(0, 0)
	s := stall{deadline: time.Second}
	at := func(progress uint64, op string) bool {
		now = now.Add(300 * time.Millisecond)
		return s.look([]Stats{waiting(stage0, machine.Wait{Op: op}, progress)}, now)
	}
	for i := range 20 {
		if at(uint64(i), "forward") {
			t.Fatal("progress is called a stall")
		}
	}
	for range 20 {
		if at(19, "") {
			t.Fatal("idleness is called a stall")
		}
	}
	told := 0
	for i := range 20 {
		if at(19, "forward") {
			told++
			if i < 3 {
				t.Fatalf("called a stall after %d ms", 300*i)
			}
		}
	}
	if told != 5 { // once for each deadline
		t.Fatalf("told %d times in 6 s", told)
	}
	at(20, "forward")
	for range 20 {
		if at(20, "forward") {
			told++
		}
	}
	if told != 10 {
		t.Fatal("the second stall was not found")
	}
}

// TestStallOfANewLife: a life that has come exactly as far as the one before is another one, and its stall is found too.
func TestStallOfANewLife(t *testing.T) {
	now := time.Unix(0, 0)
	s := stall{deadline: time.Second}
	for life := range 3 {
		told := 0
		for range 5 {
			a := waiting(stage0, machine.Wait{Op: "forward"}, 7)
			a.Incarnation = life
			if s.look([]Stats{a}, now) {
				told++
			}
			now = now.Add(300 * time.Millisecond)
		}
		if told != 1 {
			t.Errorf("life %d: told %d times", life, told)
		}
	}
}

// TestBlameInTurn: of those who wait for each other each is blamed in its turn, but not the trainer.
func TestBlameInTurn(t *testing.T) {
	round := plan.Round{Step: 7, Phase: plan.TrainPhase}
	waits := func(a, from plan.ActorID) Stats {
		return waiting(a, machine.Wait{Round: round, Op: "forward", Value: activation(1), From: from}, 0)
	}
	all := []Stats{waits(plan.Trainer, stage0), waits(stage0, stage1), waits(stage1, plan.Trainer)}
	for turn, want := range []plan.ActorID{stage0, stage1, stage0} {
		if culprit, way := blame(all, turn); culprit.Actor != want {
			t.Errorf("turn %d blames %s: %s", turn, culprit.Actor, way)
		}
	}
}

func TestBlame(t *testing.T) {
	round := plan.Round{Step: 7, Phase: plan.TrainPhase}
	loss := plan.Value{Kind: plan.Loss, Lo: 2, Piece: -1}
	waits := func(a plan.ActorID, v plan.Value, from plan.ActorID) Stats {
		return waiting(a, machine.Wait{Round: round, Op: "forward", Value: v, From: from}, 0)
	}
	trainer := waits(plan.Trainer, loss, stage1)
	for _, test := range []struct {
		name    string
		all     []Stats
		culprit plan.ActorID
		says    []string
	}{
		{
			"the one that runs", []Stats{
				waits(shard0, loss, plan.Trainer),
				waiting(stage0, machine.Wait{Round: round, Op: "forward layers 0..2 micro-batch 3", Running: true}, 0),
				waits(stage1, activation(3), stage0), trainer,
			},
			stage0, []string{"trainer (node 0) is at forward", "loss micro-batch 2 from stage.p1.d0", "activation into layer 1 micro-batch 3", "running forward layers 0..2 micro-batch 3"},
		},
		{
			"idle debtor",
			[]Stats{waiting(stage0, machine.Wait{Round: round}, 0), waits(stage1, activation(3), stage0), trainer},
			stage0, []string{"idle after train step 7"},
		},
		{
			"lost on the way",
			[]Stats{{Actor: stage0, Node: 2, Wait: machine.Wait{Round: round}, Unacknowledged: 77}, waits(stage1, activation(3), stage0), trainer},
			stage0, []string{"stage.p0.d0 (node 2)", "77 bytes"},
		},
		{
			"failed", []Stats{
				{Actor: stage0, Wait: machine.Wait{Round: round, Op: "forward", From: stage1}, Failure: "burnt"},
				waits(stage1, activation(3), stage0), trainer,
			},
			stage0, []string{"it has failed: burnt"},
		},
		{"unheard", []Stats{waits(stage1, activation(3), stage0), trainer}, stage0, []string{"stage.p0.d0 is not heard of"}},
		{"circle", []Stats{waits(stage0, activation(1), stage1), waits(stage1, activation(3), stage0)}, stage0, []string{"circle"}},
		{"nobody", []Stats{waiting(stage0, machine.Wait{}, 0)}, "", []string{"nobody has a round open"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			culprit, way := blame(test.all, 0)
			if culprit.Actor != test.culprit {
				t.Fatalf("blames %q, want %q: %s", culprit.Actor, test.culprit, way)
			}
			for _, s := range test.says {
				if !strings.Contains(way, s) {
					t.Fatalf("%q is not in %q", s, way)
				}
			}
		})
	}
}

// TestDeaf: what an actor said that does not answer any more is out of date; it hangs itself, whoever it had waited for.
func TestDeaf(t *testing.T) {
	now := time.Unix(0, 0)
	round := plan.Round{Step: 7, Phase: plan.TrainPhase}
	var l ledger
	l.stats = waiting(plan.Trainer, machine.Wait{Round: round, Op: "finish", Value: activation(1), From: stage0}, 3)
	l.stats.Opened = round
	others := []Stats{waiting(stage0, machine.Wait{Round: round}, 0), waiting(stage1, machine.Wait{Round: round}, 0)}
	culprit := func() plan.ActorID {
		c, _ := blame(append(others, l.read(now)), 0)
		return c.Actor
	}
	if c := culprit(); c != stage0 {
		t.Fatalf("blames %s, want who is waited for", c)
	}
	for range 4 { // asked again and again
		l.ask(now)
		now = now.Add(deafAfter / 4)
	}
	if c := culprit(); c != plan.Trainer {
		t.Errorf("blames %s, want who does not answer", c)
	}
	if w := l.read(now).Wait; w.Round != round || !w.Running {
		t.Errorf("it is %+v", w)
	}
	l.answer(machine.Wait{Round: round, Op: "finish", Value: activation(1), From: stage1})
	if c := culprit(); c != stage1 {
		t.Errorf("blames %s after an answer", c)
	}
	l.ask(now)
	now = now.Add(-time.Hour) // the clock is set back
	l.ask(now)
	if c := culprit(); c != stage1 {
		t.Errorf("blames %s at once", c)
	}
	if now = now.Add(deafAfter); culprit() != plan.Trainer {
		t.Errorf("blames %s, want who does not answer since the clock was set back", culprit())
	}
}
