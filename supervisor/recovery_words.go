package supervisor

import (
	"fmt"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

// RecoveryEvent is what Recovery hears of.
type RecoveryEvent interface{ recoveryEvent() }

type (
	// ActorFailed: an actor cannot go on. It is machine.Failed, with an actor.
	ActorFailed struct{ machine.Failed }
	// NodeLost: a node is gone, with its actors. NodeJoined: one is there that may hold actors.
	NodeLost struct {
		Node  int
		Cause string
	}
	NodeJoined struct{ Node int }
	// CaughtUp: an actor that was restarted has finished the round that was open.
	CaughtUp struct {
		Actor       plan.ActorID
		Incarnation int
	}
	// Slow: an actor is to live elsewhere because its node computes slowly.
	Slow struct {
		Actor       plan.ActorID
		Incarnation int
		Reason      string
	}
	// Restored: it has its state, and others can have it from it.
	Restored struct {
		Actor       plan.ActorID
		Incarnation int
	}
	// Opened: a round has begun, so all before it have committed.
	Opened struct{ Round plan.Round }
	// Tick is the passing of time, nothing else.
	Tick struct{}
)

func (ActorFailed) recoveryEvent() {}
func (NodeLost) recoveryEvent()    {}
func (NodeJoined) recoveryEvent()  {}
func (CaughtUp) recoveryEvent()    {}
func (Slow) recoveryEvent()        {}
func (Restored) recoveryEvent()    {}
func (Opened) recoveryEvent()      {}
func (Tick) recoveryEvent()        {}

// Decision is what is to be done. Every one has a reason, for the log.
type Decision interface{ String() string }

type (
	// Respawn: the old life of the actor is fenced, and incarnation Incarnation begins on node Node.
	Respawn struct {
		Actor       plan.ActorID
		Incarnation int
		From, Node  int
		// Planned says that nothing has failed.
		Planned bool
		Reason  string
	}
	// Resume: all actors begin anew from a checkpoint: the newest, or where Older is not 0 one that is older than what the attempt
	// has begun with. Told, Older is how many are left out, and Seed says that there is none.
	Resume struct {
		Older  int
		Seed   bool
		Reason string
	}
	// GiveUp: the run ends.
	GiveUp struct {
		Err    error
		Reason string
	}
	// Noted: nothing is to be done, or not yet.
	Noted struct{ Reason string }
)

func (d Respawn) String() string {
	verb := "restart"
	if d.Node != d.From {
		verb = fmt.Sprintf("move from node %d", d.From)
	}
	return fmt.Sprintf("%s %s to node %d as incarnation %d: %s", verb, d.Actor, d.Node, d.Incarnation, d.Reason)
}

func (d Resume) String() string {
	from := "its newest checkpoint"
	switch {
	case d.Seed:
		from = "the seed, as it has no checkpoint"
	case d.Older > 0:
		from += fmt.Sprintf(" but %d", d.Older)
	}
	return fmt.Sprintf("resume the job from %s: %s", from, d.Reason)
}

func (d GiveUp) String() string { return "give up: " + d.Reason }
func (d Noted) String() string  { return d.Reason }

// times says how often something was.
func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// count is a number of things, of which one has no plural.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func nameOr(name, other string) string {
	if name == "" {
		return other
	}
	return name
}
