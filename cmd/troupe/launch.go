package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-train/troupe/supervisor"
)

func launchCommand() *cobra.Command {
	var o runFlags
	var nodes int
	var external bool
	var listen string
	c := &cobra.Command{
		Use:   "launch JOB.yaml --nodes N",
		Short: "Train a job over N processes",
		Long: "Launch starts N node processes on this machine, each with its own embedded NATS server, and trains the job over them.\n" +
			"This process holds the trainer. With --external it starts none, prints the command that joins a node, and waits for N of them;\n" +
			"the command is good for as long as the launch, also in place of a node that has died.",
		Example: "  troupe launch examples/gosrc.yaml --nodes 4 --set layout.pipeline=2 --set layout.data=2\n" +
			"  troupe launch examples/gosrc.yaml --nodes 2 --external --listen 10.0.0.1:7400",
		Args: takes("one job file"),
		RunE: func(c *cobra.Command, args []string) error {
			if nodes < 1 {
				return usage(fmt.Errorf("--nodes %d; legal is 1 and more", nodes))
			}
			if err := checkAddress("listen", listen); err != nil {
				return err
			}
			job, err := o.load(args[0], c.ErrOrStderr())
			if err != nil {
				return err
			}
			show := newDisplay(c, o.json)
			result, err := supervisor.Launch(c.Context(), job, supervisor.Cluster{
				Nodes:   nodes,
				Listen:  listen,
				Spawn:   spawner(external, show),
				Shared:  !external,
				Replace: !external,
				Host:    &started,
			}, append(o.options(), supervisor.WithProgress(show.progress))...)
			started.wait(2 * time.Second) // the last line is ours
			return show.finish(result, refused(err))
		},
	}
	o.register(c)
	f := c.Flags()
	f.IntVar(&nodes, "nodes", 2, "number of node processes")
	f.BoolVar(&external, "external", false, "wait for nodes that others start, instead of starting them here")
	f.StringVar(&listen, "listen", "127.0.0.1:0", "address that nodes join at; port 0 takes a free one")
	return c
}

func nodeCommand() *cobra.Command {
	var n supervisor.NodeOptions
	c := &cobra.Command{
		Use:   "node --join HOST:PORT",
		Short: "Join a launched job as a node",
		Long: "Node joins the cluster of a `troupe launch` and runs the actors that the plan places on it. It stays when the job\n" +
			"goes back to a checkpoint. The token is read from TROUPE_TOKEN.",
		Example: "  TROUPE_TOKEN=... troupe node --join 10.0.0.1:7400\n" +
			"  TROUPE_TOKEN=... troupe node --join 10.0.0.1:7400 --listen 10.0.0.2:7400",
		Args: takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkNode(&n); err != nil {
				return err
			}
			n.Log = c.ErrOrStderr()
			n.Host = self{}
			err := supervisor.Serve(c.Context(), n)
			if err == errInterrupted { // not in the chain: it had joined
				return errors.New("interrupted: this node has left the run; its actors begin anew on other nodes, if there are any")
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&n.Join, "join", "", "address of the launched job")
	f.StringVar(&n.Listen, "listen", "", "address at which the other nodes reach this one; port 0 takes a free one (default: this machine's address on the way to the launched job)")
	f.IntVar(&n.Number, "number", 0, "number of this node, from 1; 0 takes the next that is free, and so does one that is taken")
	f.BoolVar(&n.Launched, "launched", false, "whoever listens at --join has started this process")
	if err := f.MarkHidden("launched"); err != nil {
		panic(err)
	}
	f.DurationVar(&n.Wait, "wait", 30*time.Second, "how long to try to join, and to come back when the launch is lost")
	return c
}
