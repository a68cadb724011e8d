package supervisor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/plan"
)

// TestRounds: the order of the rounds of a run, as text.
func TestRounds(t *testing.T) {
	for _, c := range []struct {
		name   string
		rounds Rounds
		stop   int64 // a clean stop is asked for after this step; 0: never
		want   string
	}{
		{"end only", Rounds{Until: 2}, 0, "i0 t0 t1 s2"},
		{"evaluation at the start, every two and at the end", Rounds{Until: 3, EvaluateEvery: 2, Evaluates: true}, 0, "i0 e0 t0 t1 e2 t2 e3 s3"},
		{"snapshots", Rounds{Until: 3, SnapshotEvery: 1}, 0, "i0 t0 s1 t1 s2 t2 s3"},
		{"resumed", Rounds{First: 4, Until: 6, SnapshotEvery: 4, EvaluateEvery: 4, Evaluates: true}, 0, "i4 e4 t4 t5 e6 s6"},
		{"nothing left to do", Rounds{First: 6, Until: 6, Evaluates: true}, 0, "i6 e6 s6"},
		{"stopped: no evaluation, but a snapshot", Rounds{Until: 9, EvaluateEvery: 1, Evaluates: true}, 2, "i0 e0 t0 e1 t1 s2"},
		{"stopped before the first step", Rounds{Until: 9}, -1, "i0 s0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := &Trainer{rounds: c.rounds, stopping: c.stop < 0}
			r := plan.Round{Step: c.rounds.First, Phase: plan.InitPhase}
			var got []string
			for ok := true; ok; {
				got = append(got, fmt.Sprintf("%c%d", r.Phase.String()[0], r.Step))
				if r.Phase == plan.TrainPhase && c.stop > 0 && r.Step+1 == c.stop {
					tr.stopping = true
				}
				before := r
				if r, ok = tr.next(r); ok && !before.Before(r) {
					t.Fatalf("%v does not come before %v", before, r)
				}
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("rounds %s, want %s", s, c.want)
			}
		})
	}
}
