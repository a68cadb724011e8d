package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-train/troupe/supervisor"
)

func auditCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "audit RUN",
		Short: "Prove that every sample is in exactly one committed step",
		Long: "Audit reads the journal of a run, the folder in save.dir, and proves that every sample is in exactly one committed\n" +
			"step, that steps were skipped only by a recorded decision, and that the checkpoints are of the same run: of its model,\n" +
			"data and batch, not ahead of the steps, and made by them. It ends with status 1 and the first violation if that is not so.",
		Example: "  troupe audit runs/gosrc\n  troupe audit runs/gosrc --json",
		Args:    takes("one folder"),
		RunE: func(c *cobra.Command, args []string) error {
			a, err := supervisor.AuditRun(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(a)
			}
			w := c.OutOrStdout()
			if a.Steps == 0 {
				fmt.Fprintf(w, "%s: no committed steps\n", a.Job)
				return nil
			}
			fmt.Fprintf(w, "%s: train steps %d to %d are committed, each once; samples %d to %d are each in exactly one of them\n", a.Job, a.From, a.From+a.Steps-1, a.First, a.Last)
			if a.Epochs > 0 {
				fmt.Fprintf(w, "%.2f epochs\n", a.Epochs)
			}
			for _, s := range a.Skipped {
				fmt.Fprintf(w, "train step %d made no update: %s\n", s.Step, s.Reason)
			}
			for _, s := range a.Shifts {
				by := "the shares of the plan"
				if s.Shares != "" {
					by = fmt.Sprintf("shares of %s micro-batches", s.Shares)
				}
				fmt.Fprintf(w, "from train step %d on the data ranks ran %s\n", s.Step, by)
			}
			if a.Runs > 1 {
				fmt.Fprintf(w, "begun %d times; steps undone by going back to a checkpoint: %d\n", a.Runs, a.Undone)
			}
			if a.Checkpoint >= 0 {
				fmt.Fprintf(w, "newest checkpoint: step %d\n", a.Checkpoint)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object as the last line of standard output")
	return c
}
