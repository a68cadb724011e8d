package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/supervisor"
)

// tokenVariable is the variable of the environment that carries a run's token to its nodes: it
// does not show in the list of processes.
const tokenVariable = "TROUPE_TOKEN"

// checkNode completes and checks what `troupe node` was told.
func checkNode(n *supervisor.NodeOptions) error {
	if n.Join == "" {
		return usage(errors.New("--join is not given; it is the address that troupe launch prints"))
	}
	if err := checkAddress("join", n.Join); err != nil {
		return err
	}
	if n.Listen == "" {
		n.Listen = towards(n.Join)
	}
	if err := checkAddress("listen", n.Listen); err != nil {
		return err
	}
	switch {
	case n.Number < 0:
		return usage(fmt.Errorf("--number %d; legal is 1 and more, and 0 for the next that is free", n.Number))
	case n.Wait <= 0:
		return usage(fmt.Errorf("--wait %s; legal is more than 0s", n.Wait))
	}
	n.Token = os.Getenv(tokenVariable)
	if n.Token == "" {
		return usage(fmt.Errorf("the variable %s is not set; troupe launch prints it", tokenVariable))
	}
	if job, secret, ok := strings.Cut(n.Token, "."); !ok || job == "" || secret == "" {
		return usage(fmt.Errorf("the variable %s is no token that troupe launch has printed; it looks like NAME.SECRET", tokenVariable))
	}
	return nil
}

func checkAddress(flag, address string) error {
	if err := actors.CheckAddress(address); err != nil {
		return usage(fmt.Errorf("--%s: %w", flag, err))
	}
	return nil
}

// spawner starts nodes as processes of this program, or prints how to start them elsewhere.
func spawner(external bool, show *display) func(ctx context.Context, number int, address, token string, ended func(error)) error {
	if external {
		return func(_ context.Context, number int, address, token string, _ func(error)) error {
			at := reachable(address)
			also := ""
			if len(at) > 1 {
				also = fmt.Sprintf(" (or --join %s)", strings.Join(at[1:], ", "))
			}
			show.line("start node %d: %s=%s troupe node --join %s --number %d%s", number, tokenVariable, token, at[0], number, also)
			return nil
		}
	}
	return func(_ context.Context, number int, address, token string, ended func(error)) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		// The node ends by itself: when the run ends, or when it hears no more of the coordinator.
		c := exec.Command(self, "node", "--join", address, "--number", strconv.Itoa(number), "--launched")
		c.Env = append(os.Environ(), tokenVariable+"="+token)
		log := &lines{print: func(line string) { show.line("node %d: %s", number, line) }}
		c.Stderr = log
		// A terminal's SIGINT is for this process, which stops the nodes in good order.
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			return err
		}
		started.add(number, c.Process.Pid)
		started.running.Go(func() {
			err := c.Wait()
			started.ended(c.Process.Pid)
			log.flush()
			if err == nil {
				err = errors.New("exit status 0")
			}
			ended(ending(number, err, c.ProcessState.Exited(), log.last))
		})
		return nil
	}
}

// ending is why a node has ended: whether it did so by itself, and what its last line was. One that a signal has told to
// leave has not ended by itself.
func ending(number int, err error, byItself bool, last string) error {
	reason, ok := strings.CutPrefix(last, "troupe: ")
	switch {
	case !byItself:
		return fmt.Errorf("node %d has ended: %w", number, err)
	case ok && strings.HasPrefix(reason, errInterrupted.Error()):
		return fmt.Errorf("node %d has ended: %w", number, errInterrupted)
	case ok:
		err = fmt.Errorf("%w: %s", err, reason)
	}
	return supervisor.Quit{Err: fmt.Errorf("node %d has ended: %w", number, err)}
}

// reachable are the addresses under which other machines may reach a listener: its own, or if it listens at all addresses
// of this machine, each of these. Those of IPv4 come first.
func reachable(address string) []string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || host != "" && (ip == nil || !ip.IsUnspecified()) {
		return []string{address}
	}
	var four, six []string
	own, _ := net.InterfaceAddrs() // without them, this machine is left
	for _, a := range own {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok || !n.IP.IsGlobalUnicast():
		case n.IP.To4() != nil:
			four = append(four, net.JoinHostPort(n.IP.String(), port))
		default:
			six = append(six, net.JoinHostPort(n.IP.String(), port))
		}
	}
	if host == "0.0.0.0" {
		six = nil
	}
	if all := append(four, six...); len(all) > 0 {
		return all
	}
	return []string{net.JoinHostPort("127.0.0.1", port)}
}

// towards is the address of this machine on the way to another, with a port that is free. Nothing is sent.
func towards(address string) string {
	host := "127.0.0.1"
	if c, err := net.Dial("udp", address); err == nil {
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
			host = a.IP.String()
		}
		c.Close()
	}
	return net.JoinHostPort(host, "0")
}

// lines is a writer that prints whole lines. One goroutine uses it.
type lines struct {
	print func(line string)
	part  []byte // of a line whose end has not come
	last  string // line that was printed
}

func (l *lines) Write(b []byte) (int, error) {
	l.part = append(l.part, b...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.last = string(line)
		l.print(l.last)
		l.part = rest
	}
}

// flush prints what stands after the last line's end.
func (l *lines) flush() {
	if len(l.part) > 0 {
		l.last = string(l.part)
		l.print(l.last)
		l.part = nil
	}
}
