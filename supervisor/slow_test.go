package supervisor

import (
	"strings"
	"testing"
	"time"

	"github.com/troupe-train/troupe/plan"
)

// testLoad is that of stages with one sequence each.
func testLoad(flops map[plan.ActorID]float64) *load { return &load{flops: flops, own: []int{1}} }

// TestSlowWatch: which stages are told to be slow, after which step. Stage p1 has twice the work of the others.
func TestSlowWatch(t *testing.T) {
	a, b, c := plan.StageID(0, 0), plan.StageID(1, 0), plan.StageID(2, 0)
	cs := func(x, y, z int) [3]int { return [3]int{x, y, z} }
	for _, k := range []struct {
		name  string
		steps [][3]int // hundredths of a second of a, b, c
		lives []int    // incarnations of a; 0 if not given
		want  map[int]plan.ActorID
	}{
		{"even", [][3]int{cs(10, 20, 10), cs(10, 20, 11), cs(9, 21, 10), cs(10, 20, 10)}, nil, nil},
		{"three in a row", [][3]int{cs(10, 20, 10), cs(30, 20, 10), cs(30, 20, 10), cs(30, 20, 10), cs(30, 20, 10)}, nil, map[int]plan.ActorID{3: a}},
		{"not in a row", [][3]int{cs(30, 20, 10), cs(30, 20, 10), cs(10, 20, 10), cs(30, 20, 10), cs(30, 20, 10)}, nil, nil},
		{"in between does not end a row", [][3]int{cs(30, 20, 10), cs(30, 20, 10), cs(18, 20, 10), cs(30, 20, 10)}, nil, map[int]plan.ActorID{3: a}},
		{"by share of work", [][3]int{cs(10, 60, 10), cs(10, 60, 10), cs(10, 60, 10)}, nil, map[int]plan.ActorID{2: b}},
		{"everybody slower is nobody slow", [][3]int{cs(10, 20, 10), cs(90, 180, 90), cs(90, 180, 90), cs(90, 180, 90)}, nil, nil},
		{"a row dies with the life", [][3]int{cs(30, 20, 10), cs(30, 20, 10), cs(30, 20, 10), cs(30, 20, 10)}, []int{0, 0, 1, 1}, nil},
		{"again after it was fast for as long", [][3]int{cs(30, 20, 10), cs(30, 20, 10), cs(30, 20, 10), cs(10, 20, 10), cs(10, 20, 10), cs(10, 20, 10), cs(30, 20, 10), cs(30, 20, 10), cs(30, 20, 10)}, nil, map[int]plan.ActorID{2: a, 8: a}},
		{"a fast step in between does not make it fast", [][3]int{cs(30, 20, 10), cs(30, 20, 10), cs(30, 20, 10), cs(10, 20, 10), cs(30, 20, 10), cs(30, 20, 10), cs(30, 20, 10)}, nil, map[int]plan.ActorID{2: a}},
	} {
		w := &SlowWatch{policy: plan.Slow{Policy: "warn", Factor: 2, Steps: 3}, load: testLoad(map[plan.ActorID]float64{a: 1, b: 2, c: 1}), streak: map[plan.ActorID]streak{}}
		for i, s := range k.steps {
			life := 0
			if k.lives != nil {
				life = k.lives[i]
			}
			at := func(n int) time.Duration { return time.Duration(n) * 10 * time.Millisecond }
			found := w.Step("", map[plan.ActorID]Measured{a: {life, at(s[0])}, b: {0, at(s[1])}, c: {0, at(s[2])}})
			var got plan.ActorID
			if len(found) == 1 {
				got = found[0].Actor
			}
			if len(found) > 1 || got != k.want[i] {
				t.Errorf("%s: after step %d %v, want %q", k.name, i, found, k.want[i])
			}
		}
	}
	alone := &SlowWatch{policy: plan.Slow{Policy: "warn", Factor: 2, Steps: 2}, load: testLoad(map[plan.ActorID]float64{a: 1}), streak: map[plan.ActorID]streak{}}
	var found []Slow
	for _, n := range []int{10, 11, 30, 30, 30, 10, 30, 30, 30} {
		found = append(found, alone.Step("", map[plan.ActorID]Measured{a: {0, time.Duration(n) * 10 * time.Millisecond}})...)
	}
	if len(found) != 1 || !strings.HasSuffix(found[0].Reason, "computed 300ms, 3.0 times as long as at its best") {
		t.Errorf("a stage that is alone and slower than it was: %v, want it told once", found)
	}
}
