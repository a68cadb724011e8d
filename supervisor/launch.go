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
}

// Launch is Run over several nodes.
func Launch(ctx context.Context, job *plan.Job, c Cluster, opts ...Option) (*Result, error) {
	if c.Nodes < 1 {
		return nil, fmt.Errorf("launch: %d nodes; legal is 1 and more", c.Nodes)
	}
	o := newOptions(opts)
	if o.model != nil || o.device != nil {
		return nil, errors.New("launch: a model or device of the caller's cannot be sent to other nodes; use Run")
	}
	r, err := prepare(job, o, c.Nodes)
	if err != nil {
		return nil, err
	}
	defer r.store.close()
	token := r.plan.Job.Name + "." + rand.Text()
	server, err := actors.StartServer(ctx, actors.ServerOptions{Job: r.plan.Job.Name, Token: token, Listen: c.Listen, Log: r.note})
	if err != nil {
		return nil, err
	}
	defer server.Close()
	node, err := actors.NewNode(actors.Options{
		Job: r.plan.Job.Name, Name: "trainer node", Placement: r.plan.Actors, Server: server, Observer: r.observer(), Log: r.note,
	})
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(r.plan.Job)
	if err != nil {
		return nil, err
	}
	s := job.Supervisor
	coordination := actors.Coordination{
		Nodes:   c.Nodes + 1,
		Version: Version,
		Welcome: actors.Welcome{
			Job:         text,
			Options:     map[string]string{optionResume: strconv.FormatBool(r.plan.Resume), optionVocab: strconv.Itoa(r.plan.Model.Vocab)},
			Fingerprint: r.plan.Fingerprint(),
		},
		Heartbeat: seconds(s.Heartbeat), Suspect: s.Suspect, Deadline: seconds(s.Deadline), Join: seconds(s.Join),
		Progress: r.note,
	}
	return r.conduct(ctx, node, coordination, func(ctx context.Context, ended func(error)) error {
		for i := 1; i <= c.Nodes; i++ {
			if err := c.Spawn(ctx, i, server.Addr(), token, ended); err != nil {
				return fmt.Errorf("launch: node %d: %w", i, err)
			}
		}
		return nil
	})
}

const (
	optionResume = "resume"
	optionVocab  = "vocabulary"
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
	server, err := actors.StartServer(joining, actors.ServerOptions{Job: job, Token: o.Token, Listen: o.Listen, Join: o.Join, Log: log})
	if err != nil {
		return err
	}
	defer server.Close()
	number := o.Number
	if number == 0 {
		number = -1
	}
	member, err := actors.Join(joining, server, actors.Hello{Node: number, Version: Version, Cores: runtime.GOMAXPROCS(0)})
	if err != nil {
		return err
	}
	defer func() { member.Leave(err) }()
	return serve(ctx, server, member, log)
}

func serve(ctx context.Context, server *actors.Server, member *actors.Member, log func(string)) (err error) {
	welcome := member.Welcome()
	p, err := welcomePlan(welcome)
	if err != nil {
		return err
	}
	node, err := actors.NewNode(actors.Options{
		Job: p.Job.Name, Index: member.Index(), Name: member.Name(), Placement: welcome.Placement, Server: server, Log: log,
	})
	if err != nil {
		return err
	}
	cast := newCast(p, nil)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		if e := node.Close(ctx); e != nil {
			err = errors.Join(err, e)
			return
		}
		err = errors.Join(err, cast.close())
	}()
	if err := cast.spawn(node, nil, nil); err != nil {
		return err
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
	return plan.New(job, m, plan.Options{Resume: w.Options[optionResume] == "true", Nodes: w.Nodes - 1})
}
