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
	// Node is the number that it asks for, or -1 for any that is free.
	Node int
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
)

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
