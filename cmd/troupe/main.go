// Command troupe trains neural networks with actors. See `troupe --help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit statuses: 0 for success, 1 for a failure, 2 for what was typed or written in a job file.
const (
	exitFailure = 1
	exitUsage   = 2
)

// usageError marks an error in what the user typed or wrote.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signals()
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "troupe:", oneLine(err.Error()))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// signals cancels the context at the first SIGINT or SIGTERM, which asks for a clean stop; the
// second one ends the process at once.
func signals() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case <-ch:
		case <-done:
			return
		}
		fmt.Fprintln(os.Stderr, "troupe: stopping after this step; again to stop at once")
		cancel()
		select {
		case <-ch:
			os.Exit(exitFailure)
		case <-done:
		}
	}()
	return ctx, func() { signal.Stop(ch); close(done); cancel() }
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "troupe",
		Short:         "Train neural networks with actors",
		Long:          "Troupe trains neural networks with actors: pipeline stages and optimizer shards that exchange named messages.",
		Example:       "  troupe train examples/gosrc.yaml\n  troupe launch examples/gosrc.yaml --nodes 2 --set layout.pipeline=2",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return c.Help()
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.AddCommand(trainCommand(), launchCommand(), nodeCommand(), planCommand(), generateCommand(), checkpointCommand(), vocabularyCommand())
	markUsage(root)
	return root
}

// markUsage makes every complaint about arguments a usage error.
func markUsage(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error { return usage(check(c, args)) }
	}
	for _, sub := range c.Commands() {
		markUsage(sub)
	}
}

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
