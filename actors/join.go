package actors

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

// Hello is what a node says of itself when it joins a run.
type Hello struct {
	// Node is the number that it asks for, or -1 for any that is free. If it is taken, any other will do.
	Node int
	// Origin is the number that whoever started its process knows it by; 0 if nobody does.
	Origin int
	// Name is how people call it: its host, for example. "node 2" if empty.
	Name string
	// Version is that of the program. It must be the coordinator's.
	Version string
	// Cores is how many it has.
	Cores int
}

// Welcome is what a node hears when it has joined.
type Welcome struct {
	// Job is the job file, and Options is what the command line said beside it.
	Job     []byte
	Options map[string]string
	// Fingerprint is that of the coordinator's plan. The node's own must be equal.
	Fingerprint string
	// Placement says which node runs each actor at the start.
	Placement []plan.Actor
	// Nodes is how many there were when the run began, the coordinator included.
	Nodes int
	// Attempt is the number of the attempt at the run, which Options of the node must have.
	Attempt uint64
	// Struck is how many strikes of faults there were before.
	Struck int
	// Late says that the run has begun. The node has no actors, wherever Placement puts them, until it is given some.
	Late bool
}

// Errors of nodes that callers act on.
var (
	// ErrRefused is in the chain when the coordinator does not let a node in.
	ErrRefused = errors.New("refused by the coordinator")
	// ErrLost is in the chain when a node has not been heard of for too long.
	ErrLost = errors.New("no heartbeat")
	// ErrFenced is in the chain when the coordinator has given a node up that is still there. Its actors live
	// elsewhere by now. It may join again, with none.
	ErrFenced = errors.New("given up by the coordinator")
	// ErrAgain is in the chain when the attempt at the run is over because another one begins, which the node may join.
	ErrAgain = errors.New("the run begins again")
	// ErrOver is in the chain when nobody listens any more at the address of the run.
	ErrOver = errors.New("the run is over")
)

// Unfit is why a node cannot take part in a run, where another one in its place could not do so either.
type Unfit struct{ Err error }

func (u Unfit) Error() string { return u.Err.Error() }
func (u Unfit) Unwrap() error { return u.Err }

const (
	defaultHeartbeat = 200 * time.Millisecond
	defaultSuspect   = 5
)

// newSession draws the name of a process.
func newSession() string { return rand.Text() }

func protoPlacement(actors []plan.Actor) []*messages.Placement {
	var all []*messages.Placement
	for _, a := range actors {
		all = append(all, &messages.Placement{Actor: string(a.ID), Node: uint32(a.Node)})
	}
	return all
}

func planPlacement(all []*messages.Placement) []plan.Actor {
	var actors []plan.Actor
	for _, p := range all {
		actors = append(actors, plan.Actor{ID: plan.ActorID(p.Actor), Node: int(p.Node)})
	}
	return actors
}
