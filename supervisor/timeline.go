package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-train/troupe/plan"
)

// Recovered is the timeline of a recovery. Times are seconds since it was detected.
type Recovered struct {
	Actor plan.ActorID `json:"actor"`
	// Incarnation is that of the life that caught up.
	Incarnation int    `json:"incarnation"`
	From        int    `json:"from_node"`
	Node        int    `json:"node"`
	Planned     bool   `json:"planned"`
	Reason      string `json:"reason"`
	// Round is the one into which it recovered.
	Round string `json:"round"`
	// Detected is in seconds since the run began.
	Detected float64 `json:"detected_seconds"`
	// Fenced: the old life has ended and a new one begun. Restored: that has the state at the start of the step.
	// Replayed: it has done its part of the round that was open. CaughtUp: the round has committed.
	Fenced   float64 `json:"fenced_seconds"`
	Restored float64 `json:"restored_seconds"`
	Replayed float64 `json:"replayed_seconds"`
	CaughtUp float64 `json:"caught_up_seconds"`
}

func (r Recovered) String() string {
	did := "recovered"
	if r.Planned {
		did = "moved"
	}
	return fmt.Sprintf("%s %s (incarnation %d on node %d) into %s in %.3f s: detected, fenced +%.3f s, restored +%.3f s, replayed +%.3f s, caught up +%.3f s",
		did, r.Actor, r.Incarnation, r.Node, r.Round, r.CaughtUp, r.Fenced, r.Restored, r.Replayed, r.CaughtUp)
}

// Timeline takes down recoveries. Times come in.
type Timeline struct {
	began time.Time
	open  map[plan.ActorID]*recovering
	done  []Recovered
}

type recovering struct {
	Recovered
	detected time.Time
	phase    int // 1 fenced, 2 restored, 3 replayed
	round    plan.Round
}

// NewTimeline begins with a run.
func NewTimeline(began time.Time) *Timeline {
	return &Timeline{began: began, open: map[plan.ActorID]*recovering{}}
}

// Detected notes that something is wrong with an actor. If it has not caught up from the time before, that is the
// same recovery.
func (t *Timeline) Detected(now time.Time, a plan.ActorID) {
	if t.open[a] == nil {
		t.open[a] = &recovering{detected: now, Recovered: Recovered{Actor: a, Detected: now.Sub(t.began).Seconds()}}
	}
}

// Fenced notes that the new life of a decision has begun.
func (t *Timeline) Fenced(now time.Time, d Respawn) {
	t.Detected(now, d.Actor)
	r := t.open[d.Actor]
	if r.Incarnation == 0 {
		r.From, r.Reason, r.Planned = d.From, d.Reason, d.Planned
	}
	r.Planned = r.Planned && d.Planned // a move before it has caught up is part of the recovery
	r.Incarnation, r.Node = d.Incarnation, d.Node
	r.phase, r.Fenced = 1, now.Sub(r.detected).Seconds()
}

// Restored notes that a life has its state and walks a round.
func (t *Timeline) Restored(now time.Time, a plan.ActorID, incarnation int, round plan.Round) {
	if r := t.open[a]; r != nil && r.Incarnation == incarnation && r.phase == 1 {
		r.phase, r.round, r.Round, r.Restored = 2, round, round.String(), now.Sub(r.detected).Seconds()
	}
}

// Replayed notes that a life has done its part of a round. It reports whether that ends what it had to catch up with.
func (t *Timeline) Replayed(now time.Time, a plan.ActorID, incarnation int, round plan.Round) bool {
	t.Restored(now, a, incarnation, round) // if nobody has said so
	r := t.open[a]
	if r == nil || r.Incarnation != incarnation || r.phase != 2 {
		return false
	}
	r.phase, r.round, r.Replayed = 3, round, now.Sub(r.detected).Seconds()
	return true
}

// Opened notes that all rounds before one have committed. It returns the recoveries that have ended by that.
func (t *Timeline) Opened(now time.Time, next plan.Round) []Recovered {
	var ended []Recovered
	for a, r := range t.open {
		if r.phase == 3 && r.round.Before(next) {
			r.CaughtUp = now.Sub(r.detected).Seconds()
			ended = append(ended, r.Recovered)
			delete(t.open, a)
		}
	}
	slices.SortFunc(ended, func(x, y Recovered) int { return strings.Compare(string(x.Actor), string(y.Actor)) })
	t.done = append(t.done, ended...)
	return ended
}

// End returns the recoveries that have ended, at the end of the run: its last round has committed.
func (t *Timeline) End(now time.Time) (all, ended []Recovered) {
	ended = t.Opened(now, plan.Round{Step: 1 << 62})
	return t.done, ended
}

// Abandon forgets what was not finished: the job goes back to a checkpoint.
func (t *Timeline) Abandon() { clear(t.open) }
