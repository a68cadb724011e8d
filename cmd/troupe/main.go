// Command troupe trains neural networks with actors. See `troupe --help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/troupe-train/troupe/supervisor"
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

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctx, stop := signals(stopping(args))
	defer stop()
	tuneHeap()
	root := newRoot()
	root.SetErr(stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	stderr.last(func() string { return lastLine(err) })
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// errInterrupted is the cause of the end of the context of all commands.
var errInterrupted = errors.New("interrupted")

// stopping is what is said at the first signal, and what at the second.
func stopping(args []string) (first, second string) {
	switch {
	case len(args) > 0 && (args[0] == "train" || args[0] == "launch"):
		return "stopping after this step", "stopped at once: what came after the newest checkpoint is lost"
	case len(args) > 0 && args[0] == "node":
		return "leaving the run", "stopped at once: the run has to find out that this node is lost"
	}
	return "stopping", "stopped at once"
}

// signals cancels the context at the first SIGINT or SIGTERM, which asks for a clean stop, and says so; the
// second one ends the process at once, with the nodes that it has started.
func signals(first, second string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case <-ch:
		case <-done:
			return
		}
		line := fmt.Sprintf("troupe: %s; again to stop at once\n", first)
		if stderr.isTerminal() {
			line = "\n" + line // the progress bar stays above
		}
		fmt.Fprint(stderr, line)
		cancel(errInterrupted)
		select {
		case <-ch:
			stderr.last(func() string {
				if n := started.kill(); n > 0 {
					second += fmt.Sprintf("; nodes killed: %d", n)
				}
				return second
			})
			os.Exit(exitFailure)
		case <-done:
		}
	}()
	return ctx, func() { signal.Stop(ch); close(done); cancel(nil) }
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "troupe",
		Short:         "Train neural networks with actors",
		Long:          "Troupe trains neural networks with actors: pipeline stages and optimizer shards that exchange named messages.",
		Example:       "  troupe train examples/gosrc.yaml\n  troupe launch examples/gosrc.yaml --nodes 2 --set layout.pipeline=2",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       supervisor.Version,
		Args:          chooses,
		RunE: func(c *cobra.Command, _ []string) error {
			return c.Help()
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetVersionTemplate("troupe {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage(fmt.Errorf("%s; see %s --help", flagProblem(err), c.CommandPath()))
	})
	root.SetHelpCommand(helpCommand())
	root.AddCommand(trainCommand(), launchCommand(), nodeCommand(), planCommand(), benchCommand(), chaosCommand(), generateCommand(), checkpointCommand(), auditCommand(), vocabularyCommand())
	return root
}

// helpCommand is `troupe help COMMAND`: the same as --help, but strict.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Print the help of a command",
		Example: "  troupe help train",
		RunE: func(c *cobra.Command, args []string) error {
			topic, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(c.Root(), strings.Join(args, " "))
			}
			return topic.Help()
		},
	}
}

// chooses is the check of the arguments of a command that has only subcommands.
func chooses(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownCommand(c, args[0])
}

func unknownCommand(c *cobra.Command, given string) error {
	var legal []string
	for _, sub := range c.Commands() {
		legal = append(legal, sub.Name())
	}
	return usage(fmt.Errorf("%s has no command %q; legal: %s", c.CommandPath(), given, strings.Join(legal, ", ")))
}

// takes is the check of the arguments of a command that takes exactly those that its usage line shows.
func takes(what ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == len(what) {
			return nil
		}
		legal := "none is legal"
		if len(what) > 0 {
			legal = strings.Join(what, " and ") + " is legal"
		}
		return usage(fmt.Errorf("%s is given %d arguments; %s: %s", c.CommandPath(), len(args), legal, c.UseLine()))
	}
}

// flagProblem says what is wrong with a flag, in words for people where the flag's value is what is wrong.
func flagProblem(err error) string {
	text := err.Error()
	given, cause, ok := strings.Cut(text, " flag: ")
	if !ok {
		return text
	}
	switch {
	case strings.Contains(cause, "duration"):
		return given + "; legal is a time such as 30s"
	case strings.Contains(cause, "ParseFloat"):
		return given + "; legal is a number"
	case strings.Contains(cause, "ParseBool"):
		return given + "; legal is true or false"
	case strings.Contains(cause, "ParseUint"):
		return given + "; legal is a whole number of 0 and more"
	case strings.Contains(cause, "strconv."):
		return given + "; legal is a whole number"
	}
	return text
}

// inside are the names of packages that errors begin with. They say nothing to who runs the program.
var inside = regexp.MustCompile(`(^|: |; )(?:actors|supervisor|messages|checkpoint|stage|optim): `)

// lastLine is the line that a failure ends with.
func lastLine(err error) string { return plain(oneLine(err.Error())) }

// plain is a text with errors in it without the names of packages that they begin with.
func plain(text string) string { return inside.ReplaceAllString(text, "$1") }

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
