package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
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
	// Spawn starts, or asks for, node number (from 1), which is to Serve with this address and token. It returns at
	// once. ended is called when the node is known to have ended, with the reason; it need not be called.
	Spawn func(ctx context.Context, number int, address, token string, ended func(error)) error
	// Shared says that all nodes run on this machine: with train.threads 0, each has its part of the cores.
	Shared bool
	// Replace says that Spawn is to be asked for another process when one has ended in the middle of the run.
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
	var faults *injector
	var valve *actors.Valve
	var clock *actors.Clock
	if len(o.faults) > 0 {
		valve, clock = actors.NewValve(), new(actors.Clock)
	}
	stand := func(ctx context.Context, r *run, token string, server *actors.Server, observer actors.Observer) (*footing, error) {
		node, err := actors.NewNode(actors.Options{
			Job: r.plan.Job.Name, Name: "trainer node", Placement: r.plan.Actors, Server: server, Observer: observer, Log: r.note,
			Faults: faultsOf(faults),
		})
		if err != nil {
			return nil, err
		}
		text, err := yaml.Marshal(r.plan.Job)
		if err != nil {
			return nil, err
		}
		s := job.Supervisor
		return &footing{
			node: node,
			coordination: actors.Coordination{
				Nodes:   c.Nodes + 1,
				Version: Version,
				Welcome: actors.Welcome{
					Job: text,
					Options: map[string]string{
						optionResume: strconv.FormatBool(r.plan.Resume), optionVocab: strconv.Itoa(r.plan.Model.Vocab), optionFaults: fault.Format(r.options.faults),
					},
					Fingerprint: r.plan.Fingerprint(),
				},
				Heartbeat: seconds(s.Heartbeat), Suspect: s.Suspect, Deadline: seconds(s.Deadline), Join: seconds(s.Join),
				Progress: r.note,
				Referee:  refereeOf(faults),
			},
			spawn: func(ctx context.Context, ended func(int, error)) error {
				for i := 1; i <= c.Nodes; i++ {
					if err := r.process(ctx, c, i, server.Addr(), token, ended); err != nil {
						return fmt.Errorf("launch: node %d: %w", i, err)
					}
				}
				return nil
			},
		}, nil
	}
	start := func() (string, *actors.Server, error) {
		token := job.Name + "." + rand.Text()
		server, err := actors.StartServer(ctx, actors.ServerOptions{Job: job.Name, Token: token, Listen: c.Listen, Log: o.note, Valve: valve, Clock: clock})
		return token, server, err
	}
	// The first server comes before everything that takes long, so that a wrong address is refused at once.
	token, server, err := start()
	if err != nil {
		return nil, err
	}
	defer func() { server.Close() }()
	r, err := prepare(job, o, c.Nodes-job.Cluster.Spares)
	if err != nil {
		return nil, err
	}
	defer func() { r.store.close() }()
	if faults, err = newInjector(o.faults, r.plan, scene{nodes: c.Nodes + 1, host: c.Host, valve: valve, clock: clock, note: r.note}); err != nil {
		return nil, err
	}
	defer faults.missed()
	first := true
	return r.attempts(ctx, func(ctx context.Context, o *root) (*footing, error) {
		if !first {
			// Every attempt has a cluster of its own: nothing of the one before can reach it.
			server.Close()
			if token, server, err = start(); err != nil {
				return nil, err
			}
		}
		first = false
		faults.tells(o)
		return stand(ctx, r, token, server, o.observer())
	})
}

// process starts a node, and another one in its place when it ends in the middle of the run: as often as an actor may be
// restarted.
func (r *run) process(ctx context.Context, c Cluster, number int, address, token string, ended func(int, error)) error {
	return c.Spawn(ctx, number, address, token, func(err error) {
		ended(number, err)
		r.mu.Lock()
		now := time.Now()
		ends := within(append(r.ends[number], now), now, r.limits.Window)
		r.ends[number] = ends
		r.mu.Unlock()
		if !c.Replace || ctx.Err() != nil {
			return
		}
		if len(ends) > r.limits.Restarts {
			r.decided(Noted{fmt.Sprintf("node %d is not started again: it has ended %d times within %s", number, len(ends), r.limits.Window)})
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.limits.Backoff):
		}
		r.decided(Noted{fmt.Sprintf("start another process as node %d: %v", number, err)})
		if err := r.process(ctx, c, number, address, token, ended); err != nil {
			r.note(fmt.Sprintf("node %d: %v", number, err))
		}
	})
}

const (
	optionResume = "resume"
	optionVocab  = "vocabulary"
	optionFaults = "faults"
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// NodeOptions say which run a node joins, and how.
type NodeOptions struct {
	// Join is the address of the launched job, and Token its secret.
	Join, Token string
	// Listen is where the other nodes reach this one; port 0 takes a free one.
	Listen string
	// Number is that of the node, from 1; 0 takes the next that is free.
	Number int
	// Wait is how long it tries to join.
	Wait time.Duration
	// Log gets lines for people.
	Log io.Writer
	// Host lets faults strike this process; nil if they may not.
	Host HostFaults
}

// Serve runs the actors that a launched job places on this node, until the run ends. It returns nil
// after an orderly end.
func Serve(ctx context.Context, o NodeOptions) (err error) {
	job, _, ok := strings.Cut(o.Token, ".")
	if !ok || job == "" {
		return errors.New("node: the token is not one that launch has made; it looks like NAME.SECRET")
	}
	log := func(line string) { fmt.Fprintln(o.Log, line) }
	joining, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	server, err := actors.StartServer(joining, actors.ServerOptions{
		Job: job, Token: o.Token, Listen: o.Listen, Join: o.Join, Log: log, Valve: actors.NewValve(), Clock: new(actors.Clock),
	})
	if err != nil {
		return err
	}
	defer server.Close()
	number := o.Number
	if number == 0 {
		number = -1
	}
	for wait := joining; ; number = -1 {
		member, err := actors.Join(wait, server, actors.Hello{Node: number, Version: Version, Cores: runtime.GOMAXPROCS(0)})
		if err != nil {
			return err
		}
		err = serve(ctx, server, member, o, log)
		member.Leave(err)
		if !errors.Is(err, actors.ErrFenced) {
			return err
		}
		// The others have held this node for lost, and its actors live elsewhere. It is of use as an empty one.
		log(fmt.Sprintf("%s joins again: %v", member.Name(), err))
		again, cancel := context.WithTimeout(ctx, o.Wait)
		defer cancel()
		wait = again
	}
}

func serve(ctx context.Context, server *actors.Server, member *actors.Member, o NodeOptions, log func(string)) (err error) {
	welcome := member.Welcome()
	p, err := welcomePlan(welcome)
	if err != nil {
		return err
	}
	list, err := fault.Parse(welcome.Options[optionFaults])
	if err != nil {
		return fmt.Errorf("node: faults of the coordinator: %w", err)
	}
	faults, err := newInjector(list, p, scene{
		node: member.Index(), nodes: welcome.Nodes, host: o.Host, valve: server.Valve(), clock: server.Clock(), note: log,
	})
	if err != nil {
		return err
	}
	faults.joins(member)
	cast := newCast(p, nil)
	node, err := actors.NewNode(actors.Options{
		Job: p.Job.Name, Index: member.Index(), Name: member.Name(), Placement: welcome.Placement, Server: server, Log: log,
		Spawn: cast.actor, Exit: func(id plan.ActorID, leftBehind bool) {
			if err := cast.exit(id, leftBehind); err != nil {
				log(err.Error())
			}
		},
		Faults: faultsOf(faults),
	})
	if err != nil {
		return errors.Join(err, cast.close())
	}
	defer func() { err = errors.Join(err, cast.end(node, log)) }()
	faults.on(node)
	cast.share(node.Index())
	if !welcome.Late {
		if err := cast.spawn(node); err != nil {
			return err
		}
	}
	if err := member.Ready(ctx, node, p.Fingerprint()); err != nil {
		return err
	}
	return member.Wait(ctx)
}

// welcomePlan makes the plan of the run that the node has joined.
func welcomePlan(w actors.Welcome) (*plan.Plan, error) {
	job, err := plan.Parse("the coordinator's job", w.Job)
	if err != nil {
		return nil, err
	}
	vocab, err := strconv.Atoi(w.Options[optionVocab])
	if err != nil {
		return nil, fmt.Errorf("node: the coordinator says that the vocabulary has %q tokens", w.Options[optionVocab])
	}
	m, err := BuildModel(job, vocab)
	if err != nil {
		return nil, err
	}
	return plan.New(job, m, plan.Options{Resume: w.Options[optionResume] == "true", Nodes: w.Nodes - 1 - job.Cluster.Spares})
}
