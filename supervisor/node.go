package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
)

// NodeOptions say which run a node joins, and how.
type NodeOptions struct {
	// Join is the address of the launched job, and Token its secret.
	Join, Token string
	// Listen is where the other nodes reach this one; port 0 takes a free one.
	Listen string
	// Number is that of the node, from 1; 0 takes the next that is free, and so does one that is taken.
	Number int
	// Wait is how long it tries to join, each time.
	Wait time.Duration
	// Launched says that whoever listens at Join has started this process: it does not wait for them to come.
	Launched bool
	// Log gets lines for people.
	Log io.Writer
	// Host lets faults strike this process; nil if they may not.
	Host HostFaults
}

// Serve runs the actors that a launched job places on this node, until the run ends. It returns nil
// after an orderly end, and the cause of ctx, itself, when the node has left the run because of that. It joins again, without its actors, when another attempt at the run begins, when it was given up and is
// still there, and when it has lost the run, as long as somebody listens at the address of that.
func Serve(ctx context.Context, o NodeOptions) (err error) {
	job, _, ok := strings.Cut(o.Token, ".")
	if !ok || job == "" {
		return errors.New("node: the token is not one that launch has made; it looks like NAME.SECRET")
	}
	joined := false
	defer func() {
		switch {
		case err == nil || ctx.Err() == nil:
		case joined:
			err = context.Cause(ctx)
		default:
			err = fmt.Errorf("%w before this node had joined a run", context.Cause(ctx))
		}
	}()
	n := &serving{options: o}
	until := time.Now().Add(o.Wait)
	joining, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	server, err := actors.StartServer(joining, actors.ServerOptions{
		Job: job, Token: o.Token, Listen: o.Listen, Join: o.Join, There: o.Launched, Log: n.log, Valve: actors.NewValve(), Clock: new(actors.Clock),
	})
	if err != nil {
		return err
	}
	defer server.Close()
	n.server = server
	number := o.Number
	if number == 0 {
		number = -1
	}
	for {
		member, err := n.join(ctx, until, number)
		if err != nil {
			return err
		}
		joined = true
		if number > 0 && member.Index() != number {
			n.log(fmt.Sprintf("node %d is not free; this is node %d", number, member.Index()))
		}
		err = n.serve(ctx, member)
		member.Leave(err)
		if !passes(err) || ctx.Err() != nil {
			return err
		}
		n.log(fmt.Sprintf("%s joins again: %s", member.Name(), strings.TrimPrefix(err.Error(), "actors: ")))
		if number = member.Index(); number >= member.Welcome().Nodes {
			number = -1 // it came late; the next attempt has no such number
		}
		n.between = errors.Is(err, actors.ErrAgain)
		until = time.Now().Add(o.Wait)
	}
}

// join asks for a place.
func (n *serving) join(ctx context.Context, until time.Time, number int) (*actors.Member, error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	return actors.Join(ctx, n.server, actors.Hello{Node: number, Origin: n.options.Number, Version: Version, Cores: runtime.GOMAXPROCS(0)})
}

// passes reports whether a node may join again that has left because of err.
func passes(err error) bool {
	return errors.Is(err, actors.ErrFenced) || errors.Is(err, actors.ErrAgain) || errors.Is(err, actors.ErrLost)
}

// serving is a node process.
type serving struct {
	options NodeOptions
	server  *actors.Server
	faults  *injector // lives as long as the process; nil before it has joined, and where there are none
	between bool      // two attempts: it was part of the one before until that ended
}

func (n *serving) log(line string) { fmt.Fprintln(n.options.Log, line) }

// serve is one membership in the run. What ends it before the run has begun, and is not of the moment, makes the node unfit.
func (n *serving) serve(ctx context.Context, member *actors.Member) (err error) {
	begun := false
	defer func() {
		if err != nil && !begun && !passes(err) && ctx.Err() == nil {
			err = actors.Unfit{Err: err}
		}
	}()
	welcome := member.Welcome()
	p, err := welcomePlan(welcome)
	if err != nil {
		return err
	}
	if err := n.arm(p, member); err != nil {
		return err
	}
	cast := newCast(p, nil)
	node, err := actors.NewNode(actors.Options{
		Job: p.Job.Name, Index: member.Index(), Name: member.Name(), Attempt: welcome.Attempt,
		Placement: welcome.Placement, Server: n.server, Log: n.log,
		Spawn: cast.actor, Exit: func(id plan.ActorID, leftBehind bool) {
			if err := cast.exit(id, leftBehind); err != nil {
				n.log(err.Error())
			}
		},
		Faults: faultsOf(n.faults),
	})
	if err != nil {
		return errors.Join(err, cast.close())
	}
	defer func() { err = errors.Join(err, cast.end(node, n.log)) }()
	n.faults.on(node)
	cast.share(node.Index())
	if !welcome.Late {
		if err := cast.spawn(node); err != nil {
			return err
		}
	}
	if err := member.Ready(ctx, node, p.Fingerprint()); err != nil {
		return err
	}
	begun = true
	return member.Wait(ctx)
}

// arm makes the injector of the faults that the coordinator tells, and has it go on as part of this membership.
func (n *serving) arm(p *plan.Plan, member *actors.Member) error {
	if n.faults == nil {
		w := member.Welcome()
		list, err := fault.Parse(w.Options[optionFaults])
		if err != nil {
			return fmt.Errorf("node: faults of the coordinator: %w", err)
		}
		all, err := optionOf(w, optionAll)
		if err != nil {
			return err
		}
		n.faults, err = newInjector(list, p, scene{
			node: member.Index(), nodes: all, host: n.options.Host, valve: n.server.Valve(), clock: n.server.Clock(), note: n.log,
		})
		if err != nil {
			return err
		}
	}
	n.faults.joins(member, n.between)
	return nil
}

// welcomePlan makes the plan of the run that the node has joined.
func welcomePlan(w actors.Welcome) (*plan.Plan, error) {
	job, err := plan.Parse("the coordinator's job", w.Job)
	if err != nil {
		return nil, err
	}
	vocab, err := optionOf(w, optionVocab)
	if err != nil {
		return nil, err
	}
	nodes, err := optionOf(w, optionNodes)
	if err != nil {
		return nil, err
	}
	m, err := BuildModel(job, vocab)
	if err != nil {
		return nil, err
	}
	return plan.New(job, m, plan.Options{Resume: w.Options[optionResume] == "true", Nodes: nodes})
}

// optionOf is an option of the coordinator's that is a number.
func optionOf(w actors.Welcome, name string) (int, error) {
	n, err := strconv.Atoi(w.Options[name])
	if err != nil {
		return 0, fmt.Errorf("node: the coordinator says %s=%q, which is no number", name, w.Options[name])
	}
	return n, nil
}
