package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

// TestRecovery: scripts of events, with the decisions that they bring about. TROUPE_REWRITE=1 rewrites them.
func TestRecovery(t *testing.T) { playScripts(t, "testdata/recovery", playScript) }

// playScripts compares the scripts of a folder with what play makes of them.
func playScripts(t *testing.T, folder string, play func(t *testing.T, text string) string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must(t, err)
			got := play(t, string(text))
			if got == string(text) {
				return
			}
			if os.Getenv("TROUPE_REWRITE") != "" {
				must(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			t.Errorf("%s\n--- got ---\n%s", file, got)
		})
	}
}

// playScript returns the script with what came of it: blocks of events, ----, the decisions, an empty line.
func playScript(t *testing.T, text string) string {
	var out strings.Builder
	var r *Recovery
	for i, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		in, _, _ := strings.Cut(block, "\n----")
		if i > 0 {
			out.WriteString("\n")
		}
		out.WriteString(in + "\n----\n")
		for _, line := range strings.Split(in, "\n") {
			if strings.HasPrefix(line, "#") {
				continue
			}
			if f := strings.Fields(line); f[0] == "setup" {
				r = scriptSetup(t, in)
				break
			}
			now, e := scriptEvent(t, line)
			for _, d := range r.Handle(now, e) {
				fmt.Fprintf(&out, "%s\n", d)
			}
			if at, ok := r.Next(); ok {
				fmt.Fprintf(&out, "next at %s\n", at.Sub(time.Time{}))
			}
		}
	}
	return out.String()
}

// scriptSetup reads the limits, then a line for each seat: node, actor, bytes, sources ("lost": none).
func scriptSetup(t *testing.T, in string) *Recovery {
	l := Limits{Restarts: 3, Window: time.Minute, Backoff: 100 * time.Millisecond, Resumes: 1, Resumable: true, Join: 30 * time.Second}
	var nodes []int
	var seats []Seat
	for _, line := range strings.Split(in, "\n") {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case f[0] == "setup":
			for _, kv := range f[1:] {
				key, value, _ := strings.Cut(kv, "=")
				n, _ := strconv.Atoi(value)
				switch key {
				case "restarts":
					l.Restarts = n
				case "resumes":
					l.Resumes = n
				case "save":
					l.Resumable = n > 0
				case "nodes":
					for i := range n {
						nodes = append(nodes, i+1)
					}
				default:
					t.Fatalf("setup %s", key)
				}
			}
		default:
			s := Seat{Actor: plan.ActorID(f[1])}
			s.Node, _ = strconv.Atoi(f[0])
			s.Bytes, _ = strconv.ParseInt(f[2], 10, 64)
			for _, x := range f[3:] {
				if x == "lost" {
					s.Lost = true
				} else {
					s.Sources = append(s.Sources, plan.ActorID(x))
				}
			}
			seats = append(seats, s)
		}
	}
	r := NewRecovery(l, seats, nodes)
	r.Handle(time.Time{}, Opened{plan.Round{Phase: plan.TrainPhase}})
	return r
}

func scriptEvent(t *testing.T, line string) (time.Time, RecoveryEvent) {
	f := strings.Fields(line)
	at, err := time.ParseDuration(f[0])
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	number := func(i int) int {
		n, err := strconv.Atoi(f[i])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return n
	}
	now := time.Time{}.Add(at)
	switch f[1] {
	case "fail":
		return now, ActorFailed{machine.Failed{Actor: plan.ActorID(f[2]), Incarnation: number(3), Round: plan.Round{Step: int64(number(4)), Phase: plan.TrainPhase}, Op: f[5], Cause: strings.Join(f[6:], " ")}}
	case "lost":
		return now, NodeLost{number(2), strings.Join(f[3:], " ")}
	case "joined":
		return now, NodeJoined{number(2)}
	case "caught-up":
		return now, CaughtUp{plan.ActorID(f[2]), number(3)}
	case "slow":
		return now, Slow{plan.ActorID(f[2]), number(3), strings.Join(f[4:], " ")}
	case "opened":
		ph := plan.TrainPhase
		if f[2] == "init" {
			ph = plan.InitPhase
		}
		return now, Opened{plan.Round{Step: int64(number(3)), Phase: ph}}
	case "restored":
		return now, Restored{plan.ActorID(f[2]), number(3)}
	case "tick":
		return now, Tick{}
	}
	t.Fatalf("event %q", line)
	return now, nil
}

// TestRecoveryInvariants: whatever fails, incarnations grow by one, no actor is put on a node that is
// lost, no shard next to its mirror while it can be helped, and no more restarts within the window than legal.
func TestRecoveryInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{Restarts: rapid.IntRange(0, 4).Draw(t, "restarts"), Window: time.Minute, Backoff: 100 * time.Millisecond, Resumes: 2, Resumable: true, Join: 5 * time.Second}
		nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
		var seats []Seat
		var list []int
		for n := range nodes {
			list = append(list, n+1)
			s, m := plan.ActorID(fmt.Sprintf("shard.p%d.d0", n)), plan.ActorID(fmt.Sprintf("mirror.p%d.d0", n))
			seats = append(seats,
				Seat{Actor: plan.StageID(n, 0), Node: n + 1, Bytes: int64(n + 1), Sources: []plan.ActorID{m}},
				Seat{Actor: s, Node: n + 1, Bytes: 5, Sources: []plan.ActorID{m}},
				Seat{Actor: m, Node: (n+1)%nodes + 1, Bytes: 5, Sources: []plan.ActorID{s}})
		}
		r := NewRecovery(l, seats, list)
		r.Handle(time.Time{}, Opened{plan.Round{Phase: plan.TrainPhase}})
		where, lives, alive := map[plan.ActorID]int{}, map[plan.ActorID]int{}, map[int]bool{}
		starts := map[plan.ActorID][]time.Time{}
		for _, s := range seats {
			where[s.Actor] = s.Node
		}
		for _, n := range list {
			alive[n] = true
		}
		now := time.Time{}
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			a := rapid.SampledFrom(seats).Draw(t, "actor").Actor
			n := rapid.SampledFrom(list).Draw(t, "node")
			var e RecoveryEvent
			switch rapid.IntRange(0, 6).Draw(t, "kind") {
			case 0:
				e = ActorFailed{machine.Failed{Actor: a, Incarnation: lives[a], Op: "x", Cause: fmt.Sprint(now)}}
			case 1:
				e, alive[n] = NodeLost{n, "gone"}, false
			case 2:
				e, alive[n] = NodeJoined{n}, true
			case 3:
				e = Slow{a, lives[a], "slow"}
			case 4:
				e = Tick{}
			default:
				e = CaughtUp{a, lives[a]}
			}
			for _, d := range r.Handle(now, e) {
				x, ok := d.(Respawn)
				if !ok {
					continue
				}
				switch {
				case x.Incarnation != lives[x.Actor]+1:
					t.Fatalf("%s after incarnation %d", d, lives[x.Actor])
				case !alive[x.Node]:
					t.Fatalf("%s, which is lost", d)
				case x.From != where[x.Actor]:
					t.Fatalf("%s, but it is on node %d", d, where[x.Actor])
				}
				lives[x.Actor], where[x.Actor] = x.Incarnation, x.Node
				if p := partner(x.Actor); p != "" && where[p] == x.Node && x.Node != x.From {
					for _, n := range list {
						if alive[n] && n != x.Node && where[p] != n && n != x.From {
							t.Fatalf("%s, next to %s, though node %d is there", d, p, n)
						}
					}
				}
				if !x.Planned {
					starts[x.Actor] = append(starts[x.Actor], now)
					recent := slices.DeleteFunc(slices.Clone(starts[x.Actor]), func(at time.Time) bool { return now.Sub(at) >= l.Window })
					if len(recent) > l.Restarts+1 { // one may have waited from the window before
						t.Fatalf("%s is restart %d within %s; %d are legal", d, len(recent), l.Window, l.Restarts)
					}
				}
			}
			if r.over {
				return
			}
		}
	})
}
