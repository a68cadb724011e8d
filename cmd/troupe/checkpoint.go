package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/troupe-train/troupe/checkpoint"
)

func checkpointCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "checkpoint",
		Short:   "Look at checkpoints",
		Example: "  troupe checkpoint check runs/gosrc\n  troupe checkpoint list runs/gosrc",
		Args:    chooses,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(&cobra.Command{
		Use:     "check DIR",
		Short:   "Read every file of every checkpoint and say whether it is whole",
		Example: "  troupe checkpoint check runs/gosrc",
		Args:    takes("one folder"),
		RunE: func(c *cobra.Command, args []string) error {
			reports, err := checkpoint.Check(args[0])
			if err != nil {
				return err
			}
			bad := 0
			for _, r := range reports {
				if r.Err != nil {
					bad++
				}
				if _, err := fmt.Fprintln(c.OutOrStdout(), r); err != nil {
					return err
				}
			}
			if bad > 0 {
				return fmt.Errorf("%d of %d files in %s are not as they were written", bad, len(reports), args[0])
			}
			return nil
		},
	}, &cobra.Command{
		Use:     "list DIR",
		Short:   "List the checkpoints in a folder",
		Long:    "List looks for the files of each checkpoint and at their sizes. It does not read them; `troupe checkpoint check` does.",
		Example: "  troupe checkpoint list runs/gosrc",
		Args:    takes("one folder"),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return fmt.Errorf("there is no folder %s", args[0])
			}
			entries, err := checkpoint.List(args[0])
			if err != nil {
				return err
			}
			if len(entries) == 0 {
				fmt.Fprintf(c.ErrOrStderr(), "no checkpoints in %s\n", args[0])
			}
			for _, e := range entries {
				state := "all files there, contents not checked"
				if e.Err != nil {
					state = e.Err.Error()
				}
				if _, err := fmt.Fprintf(c.OutOrStdout(), "step %d  %s  %s\n", e.Step, e.Path, state); err != nil {
					return err
				}
			}
			return nil
		},
	})
	return c
}
