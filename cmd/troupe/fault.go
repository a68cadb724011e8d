package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/troupe-train/troupe/plan/fault"
)

// loadFaults reads a fault plan: a YAML list, one fault an entry. A remark on it goes to notes.
func loadFaults(path string, notes io.Writer) ([]fault.Fault, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, usage(fmt.Errorf("--fault: %w", err))
	}
	var list []any
	if err := yaml.Unmarshal(data, &list); err != nil {
		where, what := path, err.Error()
		if y := yaml.Error(nil); errors.As(err, &y) {
			what = y.GetMessage()
			if k := y.GetToken(); k != nil && k.Position != nil {
				where = fmt.Sprintf("%s:%d", path, k.Position.Line)
			}
		}
		return nil, usage(fmt.Errorf("--fault %s: is no YAML list of faults, such as `- kill stage.p0.d0 at forward of train step 3`: %s", where, what))
	}
	var faults []fault.Fault
	for i, entry := range list {
		line, ok := entry.(string)
		if !ok {
			return nil, usage(fmt.Errorf("--fault %s: entry %d is no line of text, such as `- kill stage.p0.d0 at forward of train step 3`", path, i+1))
		}
		f, err := fault.ParseLine(line)
		if err != nil {
			return nil, usage(fmt.Errorf("--fault %s: entry %d: %w", path, i+1, err))
		}
		faults = append(faults, f)
	}
	if len(faults) == 0 {
		fmt.Fprintf(notes, "note: --fault %s has no faults in it\n", path)
	}
	return faults, nil
}

// started are the processes of the nodes that this process has started.
var started processes

// processes are those of nodes, for faults to strike, and to be left by nobody.
type processes struct {
	running sync.WaitGroup

	mu    sync.Mutex
	pid   map[int]int  // of the newest, by number of the node
	alive map[int]bool // by pid
}

// wait waits until all have ended and said their last words. Those that do not end within d are killed: what they were to
// join is over, and nobody is to find them later.
func (p *processes) wait(d time.Duration) {
	ended := make(chan struct{})
	go func() { p.running.Wait(); close(ended) }()
	select {
	case <-ended:
		return
	case <-time.After(d):
	}
	p.kill()
	<-ended
}

// kill ends all at once, and returns how many there were.
func (p *processes) kill() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid := range p.alive {
		_ = kill(pid) // it may have ended just now
	}
	return len(p.alive)
}

func (p *processes) add(node, pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == nil {
		p.pid, p.alive = map[int]int{}, map[int]bool{}
	}
	p.pid[node], p.alive[pid] = pid, true
}

// ended says that a process has been waited for: its number is that of nobody, or soon of somebody else.
func (p *processes) ended(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.alive, pid)
}

// of is the number of a node's process; that of node 0 is this one.
func (p *processes) of(node int) (int, error) {
	if node == 0 {
		return os.Getpid(), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pid := p.pid[node]
	if !p.alive[pid] {
		return 0, fmt.Errorf("the process of node %d is not within reach from here", node)
	}
	return pid, nil
}

// self is the process of a node, which can strike itself whatever its number is.
type self struct{}

func (self) Kill(int) error                     { return kill(os.Getpid()) }
func (self) Pause(_ int, d time.Duration) error { return pause(os.Getpid(), d) }

// Kill is kill -9.
func (p *processes) Kill(node int) error {
	pid, err := p.of(node)
	if err != nil {
		return err
	}
	return kill(pid)
}

// Pause is SIGSTOP, and SIGCONT after d.
func (p *processes) Pause(node int, d time.Duration) error {
	pid, err := p.of(node)
	if err != nil {
		return err
	}
	return pause(pid, d)
}

func kill(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }

// pause has another process wake this one, which may be the one that is paused.
func pause(pid int, d time.Duration) error {
	wake := exec.Command("sh", "-c", `sleep "$1"; kill -CONT "$2"`, "sh", strconv.FormatFloat(d.Seconds(), 'f', 3, 64), strconv.Itoa(pid))
	if err := wake.Start(); err != nil {
		return err
	}
	go func() { _ = wake.Wait() }() // it ends by itself
	return syscall.Kill(pid, syscall.SIGSTOP)
}
