package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/supervisor"
)

func trainCommand() *cobra.Command {
	var o runFlags
	c := &cobra.Command{
		Use:     "train JOB.yaml",
		Short:   "Train a job in this process",
		Example: "  troupe train examples/gosrc.yaml\n  troupe train examples/gosrc.yaml --set layout.pipeline=2 --set train.steps=50 --json",
		Args:    takes("one job file"),
		RunE: func(c *cobra.Command, args []string) error {
			job, err := o.load(args[0], c.ErrOrStderr())
			if err != nil {
				return err
			}
			show := newDisplay(c, o.json)
			result, err := supervisor.Run(c.Context(), job, append(o.options(), supervisor.WithProgress(show.progress))...)
			return show.finish(result, refused(err))
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
	fault             string
	faults            []fault.Fault // those in the file
}

func (o *runFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&o.set, "set", nil, "set a key of the job, as in --set layout.pipeline=2; may be repeated")
	f.BoolVar(&o.json, "json", false, "print one JSON object as the last line of standard output")
	f.BoolVar(&o.resume, "resume", false, "go on from the newest complete checkpoint in save.dir")
	f.BoolVar(&o.overwrite, "overwrite", false, "start afresh and remove the checkpoints in save.dir")
	f.Int64Var(&o.stopAt, "stop-at", 0, "stop cleanly, with a checkpoint, when this many steps are committed")
	f.StringVar(&o.fault, "fault", "", "let the faults in this file strike the run: a YAML list, one fault an entry, such as 'kill stage.p0.d0 at forward of train step 3' (docs/faults.md)")
}

// load reads the job and checks the flags against each other and against it. Remarks go to notes.
func (o *runFlags) load(path string, notes io.Writer) (*plan.Job, error) {
	switch {
	case o.resume && o.overwrite:
		return nil, usage(errors.New("--resume and --overwrite are both given; one of them is legal"))
	case o.stopAt < 0:
		return nil, usage(fmt.Errorf("--stop-at %d; legal is 1 and more, and 0 for no stop", o.stopAt))
	}
	job, err := loadJob(path, o.set)
	if err != nil {
		return nil, err
	}
	if o.faults, err = loadFaults(o.fault, notes); err != nil {
		return nil, err
	}
	if job.Save.Dir == "" && (o.resume || o.overwrite) {
		return nil, usage(errors.New("--resume and --overwrite need save.dir, and the job has none"))
	}
	return job, nil
}

// refused marks what is wrong with the job itself, and was found only when model and plan were built.
func refused(err error) error {
	if errors.As(err, new(*plan.JobError)) {
		return usage(err)
	}
	return err
}

func (o *runFlags) options() []supervisor.Option {
	var opts []supervisor.Option
	switch {
	case o.resume:
		opts = append(opts, supervisor.WithResume())
	case o.overwrite:
		opts = append(opts, supervisor.WithOverwrite())
	}
	if len(o.faults) > 0 {
		opts = append(opts, supervisor.WithFaults(o.faults))
	}
	if o.stopAt > 0 {
		opts = append(opts, supervisor.WithStopAt(o.stopAt))
	}
	return opts
}
