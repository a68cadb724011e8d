package machine_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

var update = flag.Bool("update", false, "rewrite the expected output of the scripts in testdata")

// TestScripts plays the scripts in testdata: a command, a line of dashes, and the output that is
// expected of it up to an empty line. `go test -run TestScripts -update` writes what comes out.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			s := &script{live: map[string]int{}}
			for i, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
				command, want, _ := strings.Cut(block, "\n----\n")
				want = strings.TrimSpace(strings.TrimSuffix(want, "\n----"))
				got := strings.TrimSpace(s.play(t, strings.TrimSuffix(command, "\n----")))
				if got != want && !*update {
					t.Errorf("%s, command %d:\n%s\ngives\n%s\nand not\n%s", file, i+1, command, got, want)
				}
				fmt.Fprintf(&out, "%s\n----\n", strings.TrimSuffix(command, "\n----"))
				if got != "" {
					out.WriteString(got + "\n")
				}
				out.WriteString("\n")
			}
			if *update {
				if err := os.WriteFile(file, append(bytes.TrimSpace(out.Bytes()), '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// script holds one walker and what it was told to do.
type script struct {
	w        *machine.Walker
	id       plan.ActorID
	plan     *plan.Plan
	launched []machine.Launch
	live     map[string]int
}

// counted is a payload that is nothing but its references.
type counted struct {
	name string
	live map[string]int
}

func (c counted) Bytes() int64 { return 1 }
func (c counted) Retain()      { c.live[c.name]++ }
func (c counted) Release()     { c.live[c.name]-- }

func newCounted(name string, live map[string]int) counted {
	live[name]++
	return counted{name, live}
}

// play runs the lines of a command; lines that start with # are comments.
func (s *script) play(t *testing.T, command string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(command) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		options := map[string]string{}
		var args []string
		for _, w := range words[1:] {
			if k, v, ok := strings.Cut(w, "="); ok {
				options[k] = v
			} else {
				args = append(args, w)
			}
		}
		switch words[0] {
		case "actor":
			s.actor(t, args[0], options, &out)
		case "start":
			name := s.name(t, plan.Value{Kind: plan.Start, Piece: -1}, args[0], args[1])
			name.From = plan.Trainer
			s.arrive(name, nil, options, &out)
		case "arrive":
			// arrive VALUE PHASE STEP FROM
			name := s.name(t, value(t, args[0]), args[1], args[2])
			name.From = plan.ActorID(args[3])
			s.arrive(name, newCounted(args[0], s.live), options, &out)
		case "open":
			name := s.name(t, plan.Value{}, args[0], args[1])
			s.effects(s.w.Open(name.Round), &out)
		case "complete":
			if len(s.launched) == 0 {
				t.Fatalf("nothing is on the stream")
			}
			l := s.launched[0]
			s.launched = s.launched[1:]
			e := machine.Completed{Round: l.Round, Op: l.Index}
			if text := options["error"]; text != "" {
				e.Err = errors.New(text)
			} else {
				for _, v := range l.Op.Writes {
					if machine.Resident(v) {
						e.Out = append(e.Out, nil)
					} else {
						e.Out = append(e.Out, newCounted(short(v), s.live))
					}
				}
			}
			s.effects(s.w.Handle(e), &out)
		case "peer":
			// peer ACTOR INCARNATION [PHASE STEP]
			n, _ := strconv.Atoi(args[1])
			e := machine.PeerIs{Peer: plan.ActorID(args[0]), Incarnation: n}
			if len(args) > 2 {
				e.Round = s.name(t, plan.Value{}, args[2], args[3]).Round
			}
			s.effects(s.w.Handle(e), &out)
		case "forget":
			fmt.Fprintln(&out, s.w.Forget(plan.ActorID(args[0])))
			s.effects(s.w.Handle(machine.Tick{}), &out)
		case "waiting":
			fmt.Fprintln(&out, s.w.Waiting())
		case "finished":
			fmt.Fprintln(&out, s.w.Finished())
		case "counts":
			fmt.Fprintf(&out, "%+v\n", s.w.Counts())
		case "close":
			s.effects(s.w.Close(), &out)
		case "held":
			s.held(&out)
		default:
			t.Fatalf("unknown command %q", words[0])
		}
	}
	return out.String()
}

func (s *script) actor(t *testing.T, set string, options map[string]string, out *strings.Builder) {
	programs, ok := sets[set]
	if !ok {
		t.Fatalf("there is no set of programs %q", set)
	}
	s.plan = &plan.Plan{Job: &plan.Job{Name: "job"}}
	for i := range programs {
		p := &programs[i]
		s.id = p.Actor
		s.plan.Programs[p.Phase] = map[plan.ActorID]*plan.Program{p.Actor: p}
		fmt.Fprintf(out, "%s of %s:\n", p.Phase, p.Actor)
		for i, op := range p.Ops {
			fmt.Fprintf(out, "%d %s", i, op)
			if len(op.Frees) > 0 {
				fmt.Fprintf(out, "; frees %s", list(op.Frees))
			}
			fmt.Fprintln(out)
		}
	}
	var opts []machine.Option
	if w := options["window"]; w != "" {
		n, _ := strconv.Atoi(w)
		opts = append(opts, machine.Window(n))
	}
	if n, _ := strconv.Atoi(options["incarnation"]); n > 0 {
		opts = append(opts, machine.Incarnation(n))
	}
	s.w = machine.NewWalker(s.plan, s.id, opts...)
}

func (s *script) name(t *testing.T, v plan.Value, phase, step string) machine.Name {
	n, err := strconv.Atoi(step)
	if err != nil {
		t.Fatalf("step %q", step)
	}
	r := plan.Round{Step: int64(n)}
	for r.Phase < plan.Phases && r.Phase.String() != phase {
		r.Phase++
	}
	return machine.Name{Job: "job", Round: r, To: s.id, Value: v}
}

func (s *script) arrive(name machine.Name, p machine.Payload, options map[string]string, out *strings.Builder) {
	if v := options["job"]; v != "" {
		name.Job = v
	}
	if v := options["to"]; v != "" {
		name.To = plan.ActorID(v)
	}
	if v := options["from"]; v != "" {
		name.From = plan.ActorID(v)
	}
	if v := options["incarnation"]; v != "" {
		name.Incarnation, _ = strconv.Atoi(v)
	}
	if options["payload"] == "none" && p != nil {
		p.Release()
		p = nil
	}
	sum, _ := strconv.ParseUint(options["sum"], 16, 32)
	s.effects(s.w.Handle(machine.Arrived{Message: machine.Message{Name: name, Payload: p, Sum: uint32(sum)}}), out)
}

func (s *script) effects(effects []machine.Effect, out *strings.Builder) {
	for _, e := range effects {
		switch e := e.(type) {
		case machine.Send:
			n := e.Message.Name
			fmt.Fprintf(out, "send %s to %s", short(n.Value), n.To)
			if n.Round.Phase == plan.RecoverPhase {
				fmt.Fprintf(out, " (%s)", n.Round)
			}
			if n.Incarnation > 0 {
				fmt.Fprintf(out, " incarnation %d", n.Incarnation)
			}
			fmt.Fprintln(out)
		case machine.Launch:
			fmt.Fprintf(out, "launch %d %s\n", e.Index, e.Op)
			s.launched = append(s.launched, e)
		case machine.Drop:
			fmt.Fprintf(out, "drop %s\n", e.Payload.(counted).name)
			e.Payload.Release()
		case machine.Refused:
			fmt.Fprintf(out, "refused %s: %s\n", e.Name, e.Reason)
		case machine.Fail:
			fmt.Fprintf(out, "fail %s (%s): %v\n", e.Op, e.Round, e.Cause)
		case machine.Committed:
			fmt.Fprintf(out, "committed up to %s\n", e.Round)
		default:
			fmt.Fprintf(out, "%T\n", e)
		}
	}
}

// held lists the payloads to which there are references.
func (s *script) held(out *strings.Builder) {
	var names []string
	for name, n := range s.live {
		if n != 0 {
			names = append(names, fmt.Sprintf("%s %d", name, n))
		}
	}
	slices.Sort(names)
	fmt.Fprintln(out, strings.Join(names, "\n"))
}

var shorts = map[plan.Kind]string{
	plan.Start: "start", plan.Tokens: "tokens", plan.Activation: "activation", plan.ActivationGrad: "upstream", plan.Saved: "saved",
	plan.Stashed: "stashed", plan.Gradient: "gradient", plan.Parameters: "parameters", plan.Report: "report", plan.Loss: "loss",
	plan.Reduced: "reduced", plan.Verdict: "verdict", plan.State: "state",
}

// short writes a value as KIND/INDEX/LO, and with /PIECE if it has one.
func short(v plan.Value) string {
	s := fmt.Sprintf("%s/%d/%d", shorts[v.Kind], v.Index, v.Lo)
	if v.Piece >= 0 {
		s += fmt.Sprintf("/%d", v.Piece)
	}
	return s
}

func value(t *testing.T, s string) plan.Value {
	t.Helper()
	parts := strings.Split(s, "/")
	v := plan.Value{Piece: -1}
	for k, name := range shorts {
		if name == parts[0] {
			v.Kind = k
		}
	}
	numbers := make([]int, 3)
	numbers[2] = -1
	for i, p := range parts[1:] {
		n, err := strconv.Atoi(p)
		if err != nil {
			t.Fatalf("value %q: %v", s, err)
		}
		numbers[i] = n
	}
	if !v.Kind.Valid() {
		t.Fatalf("value %q has no kind", s)
	}
	v.Index, v.Lo, v.Piece = numbers[0], numbers[1], numbers[2]
	return v
}

func list(values []plan.Value) string {
	var names []string
	for _, v := range values {
		names = append(names, short(v))
	}
	return strings.Join(names, ", ")
}
