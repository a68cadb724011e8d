package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/stage"
	"github.com/troupe-train/troupe/supervisor"
)

// Actor is what the simulator drives.
type Actor struct {
	Machine  machine.Machine
	Executor machine.Executor
	Account  *device.Account
}

// Config is a simulation.
type Config struct {
	// Actors, one of them the trainer.
	Actors []Actor
	// Device runs the kernels. Its Close stays with the caller.
	Device device.Device
	Seed   uint64
	// Network is how messages travel; the zero value is Prompt.
	Network Network
	// OpTimeMax is the most virtual time that an operation takes; 0 stands for 1 ms.
	OpTimeMax time.Duration
	// EventsMax is the most events of a run; 0 stands for a million.
	EventsMax int
	// Trace, if not nil, is written a line for each event.
	Trace io.Writer
	// Cluster, if not nil, has failures answered. Without it, one ends the run.
	Cluster *Cluster
}

// Network is how messages travel. The delay of each is drawn evenly from [DelayMin, DelayMax], apart
// from the rest; so they overtake each other.
type Network struct {
	DelayMin, DelayMax time.Duration
	// Stragglers is the share of messages that take StragglerFactor times as long.
	Stragglers      float64
	StragglerFactor int
	// Duplicates is the share of messages that come twice.
	Duplicates float64
}

// Networks to choose from.
var (
	// Prompt delivers in order, at once and once.
	Prompt = Network{}
	// Unkind delays by up to 5 ms, one message in twenty by up to 100 ms, and repeats one in ten.
	Unkind = Network{DelayMax: 5 * time.Millisecond, Stragglers: 0.05, StragglerFactor: 20, Duplicates: 0.1}
)

// Cluster is what a run needs to live through faults.
type Cluster struct {
	Plan *plan.Plan
	// Nodes is the number of nodes, node 0 included; 0 stands for those of the plan. Those of which the plan
	// makes no use are spares.
	Nodes int
	// Faults may be nil. It is kept by the caller when a run goes on after ErrResume.
	Faults *fault.Matcher
	// Disks, if not nil, is told of disks that are full.
	Disks *Disks
	// Limits are those of Recovery.
	Limits supervisor.Limits
	// Respawn makes an actor for a new life.
	Respawn func(Life) (Actor, error)
	// Heartbeat is the time after which a node that is silent is held to be lost, and Deadline that after which an
	// operation that does not end has failed; 0 stands for 1 s and 10 s.
	Heartbeat, Deadline time.Duration
	// Plant is a mistake that tests plant.
	Plant Plant
}

// Disks are those of the nodes of a simulation.
type Disks struct{ full map[int]bool }

// Full says that nothing can be written to the disk of a node now.
func (d *Disks) Full(node int) bool { return d != nil && d.full[node] }

// Life is one that begins. Open is the round that is open by the trainer's journal, Shares are those of the
// steps to come, and Lives are the incarnations of the other actors: a trainer begins its new life with all three.
type Life struct {
	ID          plan.ActorID
	Incarnation int
	Open        plan.Round
	Shares      plan.Shares
	Lives       map[plan.ActorID]int
}

// Plant is a mistake in the recovery, planted to see that simulations find it.
type Plant uint8

const (
	// NoFencing takes what a life before the present one sends for the present one's.
	NoFencing Plant = iota + 1
	// EarlyTrim drops what a peer has taken from the outbox before the commit.
	EarlyTrim
	// ForgottenKey draws other random numbers in a life that is not the first.
	ForgottenKey
)

// Actors makes the stages, shards and mirrors of a plan, with an account of the job's memory limit each, and
// puts the trainer before them. Close their executors after the run.
func Actors(p *plan.Plan, d device.Device, trainer Actor) ([]Actor, error) {
	actors := []Actor{trainer}
	for _, a := range p.Actors {
		if a.ID == plan.Trainer {
			continue
		}
		x, err := NewActor(p, d, a.ID, 0)
		if err != nil {
			Close(actors)
			return nil, err
		}
		actors = append(actors, x)
	}
	return actors, nil
}

// NewActor makes a stage, shard or mirror, in a life of it.
func NewActor(p *plan.Plan, d device.Device, id plan.ActorID, incarnation int) (Actor, error) {
	a := Actor{Account: device.NewAccount(string(id), p.Job.Train.MemoryLimit)}
	var err error
	switch id.Role() {
	case "stage":
		a.Machine = stage.NewMachine(p, id, machine.Incarnation(incarnation))
		a.Executor, err = stage.NewExecutor(p, id, d, a.Account)
	case "shard", "mirror":
		a.Machine = optim.NewMachine(p, id, machine.Incarnation(incarnation))
		a.Executor, err = optim.NewExecutor(p, id, d, a.Account)
	default:
		err = fmt.Errorf("sim: no actor has the role of %q", id)
	}
	return a, err
}

// Close closes the executors that hold something between rounds.
func Close(actors []Actor) {
	for _, a := range actors {
		a.close()
	}
}

func (a Actor) close() {
	if c, ok := a.Executor.(interface{ Close() }); ok {
		c.Close()
	}
}

// Result is what a run was.
type Result struct {
	// Time is the virtual time at the end.
	Time time.Duration
	// Events that machines handled; Messages that were sent; Duplicates of them that came twice.
	Events, Messages, Duplicates int
	// Sent is the payload bytes of messages, by kind.
	Sent map[plan.Kind]int64
	// Refused are the messages that a machine refused, at most 100 of them.
	Refused []machine.Refused
	// Lives are the incarnations that actors had at the end, of those that began a new life.
	Lives map[plan.ActorID]int
	// Struck is the number of faults that struck; Decisions are those of the recovery, with their virtual time.
	Struck    int
	Decisions []string
	// Trace is the SHA-256, in hexadecimal, of the events in order.
	Trace string
}
