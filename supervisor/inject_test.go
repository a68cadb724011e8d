package supervisor

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
)

// crowd are the injectors of a launch over three nodes: 0 is the referee.
type crowd struct {
	plan *plan.Plan
	list []fault.Fault
	zero *injector
	told []string
}

func newCrowd(t *testing.T, faults string) *crowd {
	t.Helper()
	job := testRunJob(t)
	m, err := BuildModel(job, 16)
	must(t, err)
	c := &crowd{}
	c.plan, err = plan.New(job, m, plan.Options{Nodes: 2})
	must(t, err)
	c.list, err = fault.Parse(faults)
	must(t, err)
	c.zero = c.injector(t, 0)
	return c
}

func (c *crowd) injector(t *testing.T, node int) *injector {
	t.Helper()
	i, err := newInjector(c.list, c.plan, scene{node: node, nodes: 3, valve: actors.NewValve(), clock: new(actors.Clock), note: func(line string) { c.told = append(c.told, line) }})
	must(t, err)
	return i
}

// join is a process that joins as a node.
func (c *crowd) join(t *testing.T, node int, session string) *injector {
	t.Helper()
	i := c.injector(t, node)
	i.done = c.zero.Strikes().Until()
	i.asks = func(f int, count uint64) (bool, error) { return c.zero.Reached(session, f, count), nil }
	return i
}

var (
	firstStage = plan.StageID(0, 0)
	step1      = plan.Round{Step: 1, Phase: plan.TrainPhase}
	forward0   = &plan.Op{Kind: plan.Forward}
)

// TestFaultsStrikeAsOftenAsTheySay over all nodes, over processes that are started anew, and when an answer gets lost.
func TestFaultsStrikeAsOftenAsTheySay(t *testing.T) {
	c := newCrowd(t, "kill stage.p0.d0 at forward of train step 1 times 3")
	lives := []*injector{c.zero, c.join(t, 1, "a"), c.join(t, 2, "b"), c.join(t, 1, "c")}
	struck := 0
	for range 4 {
		for _, i := range lives {
			if i.Op(firstStage, step1, forward0).Kill {
				struck++
			}
		}
	}
	if struck != 3 {
		t.Errorf("struck %d times, want 3", struck)
	}
	c = newCrowd(t, "kill stage.p0.d0 at forward of train step 1")
	if first, again := c.zero.Reached("a", 0, 0), c.zero.Reached("a", 0, 0); !first || !again || c.zero.Reached("a", 0, 1) || c.zero.Reached("b", 0, 0) || c.zero.Reached("b", 7, 0) {
		t.Error("a question that is asked again has another answer, or there are two strikes")
	}
}

// TestNodeAloneCountsForItself: where there is no answer the fault strikes as often as it says on this node, and none but it.
func TestNodeAloneCountsForItself(t *testing.T) {
	c := newCrowd(t, `kill stage.p0.d0 at forward of train step 1 times 2
jump-clock 1 at stage.p0.d0 forward of train step 1 for 1h
jump-clock 2 at stage.p0.d0 forward of train step 1 for 1h`)
	i := c.join(t, 1, "a")
	i.asks = func(int, uint64) (bool, error) { return false, errors.New("nobody answers") }
	struck := 0
	for range 4 {
		if i.Op(firstStage, step1, forward0).Kill {
			struck++
		}
	}
	if ahead := time.Until(i.clock.Now()); struck != 2 || ahead < 59*time.Minute || ahead > time.Hour {
		t.Errorf("struck %d times, the clock is %s ahead", struck, ahead)
	}
	if told := strings.Join(c.told, "\n"); !strings.Contains(told, "jump-clock 1") || !strings.Contains(told, "by its own count, and only itself") || strings.Contains(told, "jump-clock 2") {
		t.Errorf("it tells\n%s", told)
	}
}

// TestStrikesElsewhere: whichever node comes to the point, a strike is carried out once by those that it concerns, and not by a
// process that joins later.
func TestStrikesElsewhere(t *testing.T) {
	c := newCrowd(t, "jump-clock 2 at stage.p0.d0 forward of train step 1 for 1h times 70\nkill stage.p1.d0 at stage.p0.d0 forward of train step 1")
	one, two := c.join(t, 1, "a"), c.join(t, 2, "b")
	var harmed []plan.ActorID
	two.harm = func(a plan.ActorID, h actors.Harm) bool {
		if h.Kill {
			harmed = append(harmed, a)
		}
		return true
	}
	ahead := func(i *injector) time.Duration { return time.Until(i.clock.Now()).Round(time.Hour) }
	for n := range 70 { // more than the list holds
		if h := one.Op(firstStage, step1, forward0); h != (actors.Harm{}) {
			t.Fatalf("the actor at the point is struck: %+v", h)
		}
		for range 2 {
			one.Struck(c.zero.Strikes())
			two.Struck(c.zero.Strikes())
		}
		if n == 1 && !slices.Equal(harmed, []plan.ActorID{"stage.p1.d0"}) {
			t.Errorf("harmed: %v", harmed)
		}
	}
	late := c.join(t, 2, "c")
	late.Struck(c.zero.Strikes())
	if ahead(c.zero) != 0 || ahead(one) != 0 || ahead(two) != 70*time.Hour || ahead(late) != 0 || len(harmed) != 1 {
		t.Errorf("the clocks are %s, %s, %s and %s ahead; harmed: %v", ahead(c.zero), ahead(one), ahead(two), ahead(late), harmed)
	}
	if n := len(c.zero.Strikes().Faults); n > mostStrikes {
		t.Errorf("the list has %d strikes", n)
	}
}

func TestFaultsThatNoProcessCanDo(t *testing.T) {
	c := newCrowd(t, "")
	for line, says := range map[string]string{
		"partition 0,1,2 at trainer of train step 1 for 1s":      "it names all nodes",
		"fill-disk 1 at trainer of train step 1 for 1s":          "node 0 that writes",
		"kill-node 3 at trainer of train step 1":                 "there is no node 3",
		"kill stage.p9.d0 at trainer of train step 1":            "no actor stage.p9.d0",
		"partition 0,1,1 at trainer of train step 1 for 1s":      "",
		"jump-clock 2 at trainer of train step 1 for -1s":        "",
		"corrupt any from any to any at of train step 1 times 9": "",
	} {
		list, err := fault.Parse(line)
		must(t, err)
		if err = checkFaults(list, c.plan, 3); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", line, err, says)
		}
	}
	for _, line := range []string{"partition 0 at trainer of train step 1 for 1s", "kill-node 0 at trainer of train step 1", "corrupt any from any to any at of train step 1"} {
		list, err := fault.Parse(line)
		must(t, err)
		if err := checkFaults(list, c.plan, 1); err == nil || !strings.Contains(err.Error(), "one process") {
			t.Errorf("%s in one process: %v", line, err)
		}
	}
}

// TestSteady: time goes on at the pace of the clock, but for its way back.
func TestSteady(t *testing.T) {
	var s steady
	clock := time.Unix(1e6, 0)
	began := s.at(clock)
	for i, d := range []time.Duration{time.Second, -time.Hour, time.Second, time.Hour, -time.Minute, time.Second} {
		clock = clock.Add(d)
		want := []time.Duration{1, 1, 2, 3602, 3602, 3603}[i] * time.Second
		if got := s.at(clock).Sub(began); got != want {
			t.Errorf("after jump %d %s have passed, want %s", i, got, want)
		}
	}
}
