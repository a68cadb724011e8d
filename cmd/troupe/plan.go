package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/troupe-train/troupe/data"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/supervisor"
)

func planCommand() *cobra.Command {
	var set []string
	var nodes int
	var asJSON bool
	var gflops float64
	c := &cobra.Command{
		Use:     "plan JOB.yaml",
		Short:   "Print layout, placement, predicted memory and FLOPs of a job",
		Example: "  troupe plan examples/gosrc.yaml --set layout.pipeline=3 --nodes 3",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if nodes < 0 {
				return usage(fmt.Errorf("--nodes %d; legal is 0 (one process) and more", nodes))
			}
			if !(gflops > 0) {
				return usage(fmt.Errorf("--gflops %v; legal is more than 0", gflops))
			}
			job, err := loadJob(args[0], set)
			if err != nil {
				return err
			}
			t, err := data.OpenTokenizer(job.Model.Vocab)
			if err != nil {
				return err
			}
			m, err := supervisor.BuildModel(job, t.Size())
			if err != nil {
				return usage(err)
			}
			p, err := plan.New(job, m, plan.Options{Nodes: nodes})
			if err != nil {
				return usage(err)
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(planObject(p, gflops))
			}
			return printPlan(c.OutOrStdout(), p)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&set, "set", nil, "set a key of the job; may be repeated")
	f.IntVar(&nodes, "nodes", 0, "node processes to place the actors on; 0: this process alone")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.Float64Var(&gflops, "gflops", 50, "speed of a stage that the times are worked out for, in GFLOP/s")
	return c
}
