package main

import (
	"github.com/spf13/cobra"

	"github.com/troupe-train/troupe/supervisor"
)

func trainCommand() *cobra.Command {
	var o runFlags
	c := &cobra.Command{
		Use:     "train JOB.yaml",
		Short:   "Train a job in this process",
		Example: "  troupe train examples/gosrc.yaml\n  troupe train examples/gosrc.yaml --set layout.pipeline=2 --set train.steps=50 --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			job, err := loadJob(args[0], o.set)
			if err != nil {
				return err
			}
			show := newDisplay(c, o.json)
			result, err := supervisor.Run(c.Context(), job, append(o.options(), supervisor.WithProgress(show.progress))...)
			return show.finish(result, err)
		},
	}
	o.register(c)
	return c
}

// runFlags are the flags that train and launch share.
type runFlags struct {
	set               []string
	json              bool
	resume, overwrite bool
	stopAt            int64
}

func (o *runFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&o.set, "set", nil, "set a key of the job, as in --set layout.pipeline=2; may be repeated")
	f.BoolVar(&o.json, "json", false, "print one JSON object as the last line of standard output")
	f.BoolVar(&o.resume, "resume", false, "go on from the newest complete checkpoint in save.dir")
	f.BoolVar(&o.overwrite, "overwrite", false, "start afresh and remove the checkpoints in save.dir")
	f.Int64Var(&o.stopAt, "stop-at", 0, "stop cleanly, with a checkpoint, when this many steps are committed")
	c.MarkFlagsMutuallyExclusive("resume", "overwrite")
}

func (o *runFlags) options() []supervisor.Option {
	var opts []supervisor.Option
	switch {
	case o.resume:
		opts = append(opts, supervisor.WithResume())
	case o.overwrite:
		opts = append(opts, supervisor.WithOverwrite())
	}
	if o.stopAt > 0 {
		opts = append(opts, supervisor.WithStopAt(o.stopAt))
	}
	return opts
}
