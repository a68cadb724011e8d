package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
)

// Version is that of the program. Nodes of different versions do not work together.
const Version = "0.1.0"

// Cluster says over which nodes a job is launched.
type Cluster struct {
	// Nodes is the number of node processes, besides this one, which has the trainer.
	Nodes int
	// Listen is the address that nodes join at; port 0 takes a free one.
	Listen string
	// Spawn starts, or asks for, node number (from 1), which is to Serve with this address and token, until the launch ends,
	// over all attempts at the run. It returns at once. ended is called when the node is known to have ended, with the
	// reason, a Quit if it has ended by itself; it need not be called.
	Spawn func(ctx context.Context, number int, address, token string, ended func(error)) error
	// Shared says that all nodes run on this machine: with train.threads 0, each has its part of the cores.
	Shared bool
	// Replace says that Spawn is to be asked for another process when one has ended while the run gathers or goes on: as often
	// as an actor may be restarted. Without it, a node that has ended is missed until another attempt begins.
	Replace bool
	// Host lets faults strike the processes of nodes; nil if they are not within reach.
	Host HostFaults
}

// Launch is Run over several nodes.
func Launch(ctx context.Context, job *plan.Job, c Cluster, opts ...Option) (*Result, error) {
	if c.Nodes < 1 {
		return nil, fmt.Errorf("launch: %d nodes; legal is 1 and more", c.Nodes)
	}
	if s := job.Cluster.Spares; s >= c.Nodes {
		return nil, fmt.Errorf("launch: cluster.spares is %d of %d nodes; up to %d are legal", s, c.Nodes, c.Nodes-1)
	}
	if c.Shared && job.Train.Threads == 0 {
		own := *job
		own.Train.Threads = max(1, runtime.GOMAXPROCS(0)/(c.Nodes-job.Cluster.Spares))
		job = &own
	}
	o := newOptions(opts)
	if o.model != nil || o.device != nil {
		return nil, errors.New("launch: a model or device of the caller's cannot be sent to other nodes; use Run")
	}
	var valve *actors.Valve
	var clock *actors.Clock
	if len(o.faults) > 0 {
		valve, clock = actors.NewValve(), new(actors.Clock)
	}
	// The server comes before everything that takes long, so that a wrong address is refused at once.
	token := job.Name + "." + rand.Text()
	server, err := actors.StartServer(ctx, actors.ServerOptions{
		Job: job.Name, Token: token, Listen: c.Listen, Log: o.note, Valve: valve, Clock: clock,
	})
	if err != nil {
		return nil, err
	}
	defer server.Close()
	r, err := prepare(job, o, c.Nodes-job.Cluster.Spares)
	if err != nil {
		return nil, err
	}
	defer func() { r.store.close() }()
	r.crew = newCrew(ctx, c, r.limits, server.Addr(), token, r.decided)
	defer r.crew.end()
	faults, err := newInjector(o.faults, r.plan, scene{nodes: c.Nodes + 1, host: r.crew.host(), valve: valve, clock: clock, note: r.note})
	if err != nil {
		return nil, err
	}
	defer faults.missed()
	return r.attempts(ctx, func(o *root) (*footing, error) {
		faults.tells(o)
		return r.launched(c, server, o.observer(), faults)
	})
}

// launched is what an attempt stands on that runs over several nodes.
func (r *run) launched(c Cluster, server *actors.Server, observer actors.Observer, faults *injector) (*footing, error) {
	text, err := yaml.Marshal(r.plan.Job)
	if err != nil {
		return nil, err
	}
	node, err := actors.NewNode(actors.Options{
		Job: r.plan.Job.Name, Name: "trainer node", Attempt: r.attempt, Placement: r.plan.Actors, Server: server,
		Observer: observer, Log: r.note, Faults: faultsOf(faults),
	})
	if err != nil {
		return nil, err
	}
	faults.on(node)
	s := r.plan.Job.Supervisor
	return &footing{
		node: node,
		coordination: actors.Coordination{
			Nodes:   r.nodes + r.spares + 1,
			Numbers: r.wanted + 1,
			Version: Version,
			Welcome: actors.Welcome{
				Job: text,
				Options: map[string]string{
					optionResume: strconv.FormatBool(r.plan.Resume), optionVocab: strconv.Itoa(r.plan.Model.Vocab), optionFaults: fault.Format(r.options.faults),
					optionNodes: strconv.Itoa(r.nodes), optionAll: strconv.Itoa(r.wanted + 1),
				},
				Fingerprint: r.plan.Fingerprint(),
			},
			Heartbeat: seconds(s.Heartbeat), Suspect: s.Suspect, Deadline: seconds(s.Deadline), Join: seconds(s.Join),
			Progress: r.note,
			Referee:  refereeOf(faults),
		},
	}, nil
}

const (
	optionResume = "resume"
	optionVocab  = "vocabulary"
	optionFaults = "faults"
	optionNodes  = "nodes" // that the plan is made for
	optionAll    = "all"   // numbers of nodes, that of the trainer's included
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
