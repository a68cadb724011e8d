package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/troupe-train/troupe/supervisor"
)

// tokenVariable is the variable of the environment that carries a run's token to its nodes: it
// does not show in the list of processes.
const tokenVariable = "TROUPE_TOKEN"

// serveNode is the command `troupe node`.
func serveNode(ctx context.Context, n supervisor.NodeOptions) error {
	if n.Join == "" {
		return usage(errors.New("--join is not given; it is the address that `troupe launch` prints"))
	}
	n.Token = os.Getenv(tokenVariable)
	if n.Token == "" {
		return usage(fmt.Errorf("the variable %s is not set; `troupe launch` prints it", tokenVariable))
	}
	return supervisor.Serve(ctx, n)
}

// spawner starts nodes as processes of this program, or prints how to start them elsewhere.
func spawner(external bool, log io.Writer) func(ctx context.Context, number int, address, token string, ended func(error)) error {
	if external {
		return func(_ context.Context, number int, address, token string, _ func(error)) error {
			_, err := fmt.Fprintf(log, "start node %d: %s=%s troupe node --join %s --number %d\n", number, tokenVariable, token, address, number)
			return err
		}
	}
	return func(_ context.Context, number int, address, token string, ended func(error)) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		// The node ends by itself: when the run ends, or when it hears no more of the coordinator.
		c := exec.Command(self, "node", "--join", address, "--number", strconv.Itoa(number))
		c.Env = append(os.Environ(), tokenVariable+"="+token)
		c.Stderr = log
		// A terminal's SIGINT is for this process, which stops the nodes in good order.
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			return err
		}
		go func() {
			err := c.Wait()
			if err == nil {
				err = errors.New("it ended")
			}
			ended(fmt.Errorf("node %d: %w", number, err))
		}()
		return nil
	}
}
