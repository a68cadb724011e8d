package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-train/troupe/supervisor"
)

// patience is how long anything may take that should take a second or two.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	code := m.Run()
	if dir := os.Getenv(binaries); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// binaries is the variable that tells where build has put the commands.
const binaries = "TROUPE_TESTS_BINARIES"

// build builds the commands of the repository, once.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "troupe-tests-")
	if err != nil {
		return "", err
	}
	os.Setenv(binaries, dir)
	out, err := exec.Command("go", "build", "-o", dir+"/", "../cmd/...", "../examples/...").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

// process is a command that runs.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	out   bytes.Buffer
	lines chan string // of standard error; closed at its end
	said  []string    // what has been read of it
}

// start starts a command of the repository. Processes are for long tests.
func start(t testing.TB, name string, args ...string) *process {
	t.Helper()
	return startWith(t, nil, name, args...)
}

// startWith is start with more variables.
func startWith(t testing.TB, variables []string, name string, args ...string) *process {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p := &process{t: t, cmd: exec.CommandContext(ctx, filepath.Join(dir, name), args...), lines: make(chan string, 10000)}
	p.cmd.Env = append(os.Environ(), variables...)
	p.cmd.Stdout = &p.out
	p.cmd.WaitDelay = time.Second
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	return p.launch(stderr, cancel)
}

func (p *process) launch(stderr interface{ Read([]byte) (int, error) }, cancel func()) *process {
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		s := bufio.NewScanner(stderr)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			p.lines <- s.Text()
		}
	}()
	p.t.Cleanup(func() { cancel(); p.end() })
	return p
}

// await reads standard error until a line has all parts, and returns it.
func (p *process) await(parts ...string) string {
	p.t.Helper()
	for line := range p.lines {
		p.said = append(p.said, line)
		if has(line, parts...) {
			return line
		}
	}
	p.t.Fatalf("%s ended, or took more than %s, without a line with %q; it said\n%s", p.cmd, patience, parts, p.tail())
	return ""
}

func has(s string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// end waits for the end and returns the exit status; -1 when a signal ended it. It may be called again.
func (p *process) end() int {
	for line := range p.lines {
		p.said = append(p.said, line)
	}
	if p.cmd.ProcessState == nil {
		if err := p.cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			p.t.Errorf("%s: %v", p.cmd, err)
		}
	}
	return p.cmd.ProcessState.ExitCode()
}

// signal sends a signal.
func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// result is the JSON object that a successful command ends with: the last line of standard output.
func (p *process) result() *supervisor.Result {
	p.t.Helper()
	if code := p.end(); code != 0 {
		p.t.Fatalf("%s: exit status %d\n%s", p.cmd, code, p.tail())
	}
	r := new(supervisor.Result)
	if err := json.Unmarshal(p.last(), r); err != nil {
		p.t.Fatalf("%s: last line of standard output: %v\n%s", p.cmd, err, p.out.String())
	}
	return r
}

func (p *process) last() []byte {
	lines := bytes.Split(bytes.TrimSuffix(p.out.Bytes(), []byte("\n")), []byte("\n"))
	return lines[len(lines)-1]
}

// fails waits for the end and checks how the command failed: with an exit status, and with one line that
// begins with "troupe: ", which is the last and has all parts.
func (p *process) fails(code int, parts ...string) {
	p.t.Helper()
	if got := p.end(); got != code {
		p.t.Errorf("%s: exit status %d, want %d", p.cmd, got, code)
	}
	var errs []string
	last := ""
	for _, line := range p.said {
		last = line
		if strings.HasPrefix(line, "troupe: ") {
			errs = append(errs, line)
		}
	}
	if len(errs) != 1 || errs[0] != last || !has(last, parts...) {
		p.t.Errorf("%s: want one line with %q at the end; it says\n%s", p.cmd, parts, p.tail())
	}
}

// tail is the end of what the process said. Of the lines on steps, the last three are enough.
func (p *process) tail() string {
	var lines []string
	for i, line := range p.said {
		if !strings.HasPrefix(line, "step ") || i >= len(p.said)-3 {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// jobFile writes the small job to a file, with keys set.
func jobFile(t testing.TB, set ...string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.yaml")
	write(t, path, smallJob)
	args := []string{path}
	for _, s := range append([]string{"data.text=" + texts(t)}, set...) {
		args = append(args, "--set", s)
	}
	return args
}

// command is the small job as arguments of a command.
func command(t testing.TB, name string, set []string, flags ...string) []string {
	t.Helper()
	return append(append([]string{name}, jobFile(t, set...)...), flags...)
}

// children are the living processes whose parent is pid.
func children(t testing.TB, pid int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Skip("there is no /proc here to find processes in")
	}
	var pids []int
	for _, path := range stats {
		if child, parent, _ := stat(path); parent == pid {
			pids = append(pids, child)
		}
	}
	return pids
}

// stat reads the number, the parent and the state of a process; 0 where there is none.
func stat(path string) (pid, parent int, state string) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, ""
	}
	// PID (NAME) STATE PARENT ..., and NAME may hold anything.
	before, after, _ := bytes.Cut(b, []byte(" ("))
	pid, _ = strconv.Atoi(string(before))
	if fields := strings.Fields(string(after[bytes.LastIndexByte(after, ')')+1:])); len(fields) > 1 {
		state = fields[0]
		parent, _ = strconv.Atoi(fields[1])
	}
	return pid, parent, state
}

// gone waits until processes have ended.
func gone(t testing.TB, pids []int) {
	t.Helper()
	eventually(t, fmt.Sprintf("processes %v end", pids), func() bool {
		for _, pid := range pids {
			if _, _, state := stat(fmt.Sprintf("/proc/%d/stat", pid)); state != "" && state != "Z" {
				return false
			}
		}
		return true
	})
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after %s it is not so that %s", patience, what)
		}
	}
}

var (
	interrupt = syscall.SIGINT
	kill      = syscall.SIGKILL
)
