package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/troupe-train/troupe/actors"
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
		Args:    takes("one job file"),
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
			t, err := supervisor.OpenTokenizer(job)
			if err != nil {
				return refused(err)
			}
			m, err := supervisor.BuildModel(job, t.Size())
			if err != nil {
				return usage(err)
			}
			p, err := plan.New(job, m, plan.Options{Nodes: nodes})
			if err != nil {
				return usage(err)
			}
			if err := p.Fits(); err != nil {
				fmt.Fprintf(c.ErrOrStderr(), "note: a run would be refused: %v\n", err)
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(planObject(p, gflops))
			}
			return printPlan(c.OutOrStdout(), p, gflops)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&set, "set", nil, "set a key of the job; may be repeated")
	f.IntVar(&nodes, "nodes", 0, "node processes to place the actors on; 0: this process alone")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.Float64Var(&gflops, "gflops", 50, "speed of a stage that the times are worked out for, in GFLOP/s")
	return c
}

// object is what plan prints with --json.
type object struct {
	StepSeconds     float64                `json:"step_seconds"`
	Bubble          float64                `json:"bubble"`
	PeakBytes       map[plan.ActorID]int64 `json:"peak_bytes"`
	RecoveryBytes   map[plan.ActorID]int64 `json:"recovery_bytes"`
	SentBytes       map[string]int64       `json:"sent_bytes"`
	TFLOPsPerDevice float64                `json:"tflops_per_device"`
	Parameters      int                    `json:"parameters"`
	FLOPs           float64                `json:"flops"`
	Stages          []layers               `json:"stages"`
	Shares          []int                  `json:"shares"`
	Actors          []seat                 `json:"actors"`
}

// layers are those of a pipeline rank: from first to below end.
type layers struct {
	First int `json:"first"`
	End   int `json:"end"`
}

// seat is where an actor runs.
type seat struct {
	ID   plan.ActorID `json:"id"`
	Node int          `json:"node"`
}

// planObject works out times for stages of gflops GFLOP/s, without the time of messages.
func planObject(p *plan.Plan, gflops float64) object {
	o := object{
		Bubble: p.Predicted.Bubble, PeakBytes: map[plan.ActorID]int64{}, RecoveryBytes: map[plan.ActorID]int64{}, SentBytes: map[string]int64{},
		Parameters: p.Model.Len(), FLOPs: p.Predicted.FLOPs, Shares: p.Shares(),
	}
	for _, s := range p.Stages {
		o.Stages = append(o.Stages, layers{s.Lo, s.Hi})
	}
	for _, a := range p.Actors {
		o.Actors = append(o.Actors, seat{a.ID, a.Node})
	}
	var busiest float64
	stages := 0
	for _, a := range p.Predicted.Actors {
		o.PeakBytes[a.ID], o.RecoveryBytes[a.ID] = a.Peak(), a.Recovery
		busiest = max(busiest, a.FLOPs)
		if a.ID.Role() == "stage" {
			stages++
		}
	}
	for k, n := range p.Predicted.Sent {
		o.SentBytes[actors.TrafficOf(k).String()] += n
	}
	o.StepSeconds = busiest / (gflops * 1e9) * (1 + p.Predicted.Bubble)
	o.TFLOPsPerDevice = p.Predicted.FLOPs / float64(stages) / o.StepSeconds / 1e12
	return o
}

func printPlan(out io.Writer, p *plan.Plan, gflops float64) error {
	o, l := planObject(p, gflops), p.Job.Layout
	fmt.Fprintf(out, "%s: %s, %d parameters in %d layers\n", p.Job.Name, p.Model.Kind, o.Parameters, len(p.Model.Layers))
	shares := ""
	if o.Shares[0] != o.Shares[len(o.Shares)-1] || len(l.Shares) > 0 {
		shares = fmt.Sprintf(", by data rank %s", plan.SharesOf(o.Shares))
	}
	fmt.Fprintf(out, "layout: pipeline %d, data %d, schedule %s; %d micro-batches of at most %d sequences a step%s\n",
		l.Pipeline, l.Data, l.Schedule, len(p.Train), p.Job.Train.MicroBatch, shares)
	fmt.Fprintf(out, "a step: %.3g FLOP, bubble %.3f; stages of %g GFLOP/s take %.2g s, without the time of messages\n\n",
		o.FLOPs, o.Bubble, gflops, o.StepSeconds)
	wide := 0
	for _, a := range p.Actors {
		wide = max(wide, len(a.ID))
	}
	name := func(s string) string { return fmt.Sprintf("%-*s", wide, s) } // the column of names alone is flush left
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, name("actor")+"\tnode\tlayers\tFLOP\tin flight\tparameters\tgradients\toptimizer\tactivations\tmessages\tworkspace\tpeak\trecovery\t")
	for i, a := range p.Predicted.Actors {
		layers, flop, live := "", "", ""
		if rank, _, ok := a.ID.Rank(); ok && a.ID.Role() == "stage" {
			if s := p.Stages[rank]; s.Len() > 0 {
				layers = fmt.Sprintf("%s..%s", p.Model.Layers[s.Lo].Name, p.Model.Layers[s.Hi-1].Name)
			} else {
				layers = "none"
			}
			flop, live = fmt.Sprintf("%.3g", a.FLOPs), fmt.Sprint(a.LiveMicroBatches)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name(string(a.ID)), p.Actors[i].Node, layers, flop, live,
			size(a.Parameters), size(a.Gradients), size(a.Optimizer), size(a.Activations), size(a.Messages), size(a.Workspace), size(a.Peak()), size(a.Recovery))
	}
	return w.Flush()
}

// size is bytes for people.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < 3 {
		f /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[i])
}
