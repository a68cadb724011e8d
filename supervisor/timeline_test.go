package supervisor

import (
	"strings"
	"testing"
	"time"

	"github.com/troupe-train/troupe/plan"
)

// TestTimeline: the phases of a recovery, with a second failure in the middle of it and news of old lives.
func TestTimeline(t *testing.T) {
	began := time.Unix(100, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	a, b := plan.StageID(0, 0), plan.StageID(1, 0)
	round := plan.Round{Step: 7, Phase: plan.TrainPhase}
	l := NewTimeline(began)
	l.Detected(at(1000), a)
	l.Fenced(at(1010), Respawn{Actor: a, Incarnation: 1, From: 1, Node: 1, Reason: "boom"})
	l.Restored(at(1020), a, 0, round) // an old life
	l.Detected(at(1030), a)           // it fails again
	l.Fenced(at(1100), Respawn{Actor: a, Incarnation: 2, From: 1, Node: 2, Reason: "boom again"})
	if l.Replayed(at(1110), a, 1, round) {
		t.Error("an old life has caught up")
	}
	l.Restored(at(1120), a, 2, round)
	l.Fenced(at(1125), Respawn{Actor: b, Incarnation: 1, Node: 1, Planned: true})
	if !l.Replayed(at(1150), a, 2, round) || l.Replayed(at(1151), a, 2, round) {
		t.Error("it catches up once")
	}
	if got := l.Opened(at(1160), round); got != nil {
		t.Errorf("ended before the round has committed: %v", got)
	}
	got := l.Opened(at(1200), plan.Round{Step: 8, Phase: plan.TrainPhase})
	want := "recovered stage.p0.d0 (incarnation 2 on node 2) into train step 7 in 0.200 s: detected, fenced +0.100 s, restored +0.120 s, replayed +0.150 s, caught up +0.200 s"
	if len(got) != 1 || got[0].String() != want || got[0].Detected != 1 || got[0].From != 1 || got[0].Reason != "boom" {
		t.Errorf("%+v", got)
	}
	l.Replayed(at(1300), b, 1, plan.Round{Step: 8, Phase: plan.TrainPhase})
	all, ended := l.End(at(1400))
	if len(all) != 2 || len(ended) != 1 || !strings.HasPrefix(ended[0].String(), "moved stage.p1.d0") || ended[0].Restored != ended[0].Replayed {
		t.Errorf("%v, %v", all, ended)
	}
}
