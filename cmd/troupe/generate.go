package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-train/troupe/supervisor"
)

func generateCommand() *cobra.Command {
	var prompt string
	var tokens int
	s := supervisor.Sampling{}
	c := &cobra.Command{
		Use:     "generate DIR",
		Short:   "Write text with the newest checkpoint in a folder",
		Example: "  troupe generate runs/gosrc --prompt 'func main() {' --tokens 200 --temperature 0.8 --top-k 20",
		Args:    takes("one folder"),
		RunE: func(c *cobra.Command, args []string) error {
			if tokens < 0 {
				return usage(fmt.Errorf("--tokens %d; legal is 0 and more", tokens))
			}
			if err := s.Check(); err != nil {
				return usage(err)
			}
			g, err := supervisor.OpenGenerator(args[0])
			if err != nil {
				return err
			}
			defer g.Close()
			for _, reason := range g.Skipped() {
				fmt.Fprintln(c.ErrOrStderr(), "not loaded:", reason)
			}
			fmt.Fprintf(c.ErrOrStderr(), "model of step %d\n", g.Step())
			out := c.OutOrStdout()
			if _, err := fmt.Fprint(out, prompt); err != nil {
				return err
			}
			err = g.Generate([]byte(prompt), tokens, s, func(text []byte) error {
				if c.Context().Err() != nil {
					return context.Cause(c.Context())
				}
				_, err := out.Write(text)
				return err
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(out)
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&prompt, "prompt", "", "text to go on from")
	f.IntVar(&tokens, "tokens", 200, "tokens to write")
	f.Float64Var(&s.Temperature, "temperature", 0.8, "divides the logits; 0 takes the most likely token")
	f.IntVar(&s.TopK, "top-k", 0, "draw from the most likely tokens only; 0: from all")
	f.Uint64Var(&s.Seed, "seed", 1, "the same seed gives the same text")
	return c
}
