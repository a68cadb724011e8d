package schedule

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestDrawings compares small orders with the figures that papers draw.
func TestDrawings(t *testing.T) {
	for _, c := range []struct {
		name  string
		shape Shape
		want  string
	}{
		{"gpipe", Shape{2, 2}, "F0 F1 B0 W0 B1 W1 | F0 F1 B0 W0 B1 W1"},
		{"1f1b", Shape{1, 2}, "F0 B0 W0 F1 B1 W1"},
		{"1f1b", Shape{3, 4}, "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3 | F0 F1 B0 W0 F2 B1 W1 F3 B2 W2 B3 W3 | F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3"},
		{"1f1b", Shape{3, 1}, "F0 B0 W0 | F0 B0 W0 | F0 B0 W0"},
	} {
		s, ok := ByName(c.name)
		if !ok {
			t.Fatalf("there is no schedule %s", c.name)
		}
		var ranks []string
		for _, tasks := range s.Order(c.shape) {
			ranks = append(ranks, strings.Trim(fmt.Sprint(tasks), "[]"))
		}
		if got := strings.Join(ranks, " | "); got != c.want {
			t.Errorf("%s of %+v is\n%s, want\n%s", c.name, c.shape, got, c.want)
		}
	}
}

// TestOrders checks the invariants of every schedule for any shape.
func TestOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(Names()).Draw(t, "schedule")
		shape := Shape{rapid.IntRange(1, 9).Draw(t, "ranks"), rapid.IntRange(1, 20).Draw(t, "micro")}
		s, _ := ByName(name)
		order := s.Order(shape)
		if len(order) != shape.Ranks {
			t.Fatalf("%s makes %d ranks of %+v", name, len(order), shape)
		}
		type at struct {
			rank int
			task Task
		}
		done := map[at]bool{}
		for r, tasks := range order {
			if len(tasks) != 3*shape.Micro {
				t.Fatalf("rank %d has %d tasks", r, len(tasks))
			}
			live, most := 0, 0
			seen := map[Task]bool{}
			for _, task := range tasks {
				if task.Micro < 0 || task.Micro >= shape.Micro || seen[task] {
					t.Fatalf("rank %d has %s, which is out of range or there twice", r, task)
				}
				if task.Kind > F && !seen[Task{task.Kind - 1, task.Chunk, task.Micro}] {
					t.Fatalf("rank %d has %s before what it needs", r, task)
				}
				seen[task] = true
				switch task.Kind {
				case F:
					live++
					most = max(most, live)
				case W:
					live--
				}
			}
			want := shape.Micro
			if name == "1f1b" {
				want = min(shape.Ranks-r, shape.Micro)
			}
			if most != want {
				t.Fatalf("rank %d holds %d micro-batches, want %d", r, most, want)
			}
		}
		// Run the ranks with what their neighbours hand over, until nothing moves.
		next := make([]int, shape.Ranks)
		for moved := true; moved; {
			moved = false
			for r := range order {
				for next[r] < len(order[r]) {
					task := order[r][next[r]]
					if task.Kind == F && r > 0 && !done[at{r - 1, task}] || task.Kind == B && r < shape.Ranks-1 && !done[at{r + 1, task}] {
						break
					}
					done[at{r, task}] = true
					next[r]++
					moved = true
				}
			}
		}
		for r := range order {
			if next[r] != len(order[r]) {
				t.Fatalf("rank %d stands still at %s", r, order[r][next[r]])
			}
		}
	})
}

func TestByNameRefuses(t *testing.T) {
	if s, ok := ByName("pipedream"); ok {
		t.Fatalf("there is a schedule %+v", s)
	}
}
