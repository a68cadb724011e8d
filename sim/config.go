package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/stage"
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

// Actors makes the stages and shards of a plan, with an account of the job's memory limit each, and
// puts the trainer before them. Close their executors after the run.
func Actors(p *plan.Plan, d device.Device, trainer Actor) ([]Actor, error) {
	actors := []Actor{trainer}
	for _, a := range p.Actors {
		x := Actor{Account: device.NewAccount(string(a.ID), p.Job.Train.MemoryLimit)}
		var err error
		switch a.ID.Role() {
		case "trainer":
			continue
		case "stage":
			x.Machine = stage.NewMachine(p, a.ID)
			x.Executor, err = stage.NewExecutor(p, a.ID, d, x.Account)
		case "shard":
			x.Machine = optim.NewMachine(p, a.ID)
			x.Executor, err = optim.NewExecutor(p, a.ID, d, x.Account)
		default:
			err = fmt.Errorf("sim: no actor has the role of %q", a.ID)
		}
		if err != nil {
			Close(actors)
			return nil, err
		}
		actors = append(actors, x)
	}
	return actors, nil
}

// Close closes the executors that hold something between rounds.
func Close(actors []Actor) {
	for _, a := range actors {
		if c, ok := a.Executor.(interface{ Close() }); ok {
			c.Close()
		}
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
	// Trace is the SHA-256, in hexadecimal, of the events in order.
	Trace string
}
