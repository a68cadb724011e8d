package schedule

import "fmt"

// Kind is the kind of a task.
type Kind uint8

const (
	// F is the forward pass, B the gradient of the input, W the gradient of the weights.
	F Kind = iota
	B
	W
)

func (k Kind) String() string { return [...]string{"F", "B", "W"}[k] }

// Task is one box of the drawing: one pass of one chunk over one micro-batch.
type Task struct {
	Kind  Kind
	Chunk int
	Micro int
}

func (t Task) String() string {
	if t.Chunk > 0 {
		return fmt.Sprintf("%s%d.%d", t.Kind, t.Chunk, t.Micro)
	}
	return fmt.Sprintf("%s%d", t.Kind, t.Micro)
}

// Shape is what a schedule is made for: pipeline ranks and the micro-batches of one data rank,
// both at least 1.
type Shape struct{ Ranks, Micro int }

// Schedule is a named order.
type Schedule struct {
	Name string
	// Order returns the tasks of each rank.
	Order func(Shape) [][]Task
}

// registry has one line for each schedule; the first is the default.
var registry = []Schedule{
	{"1f1b", OneForwardOneBackward},
	{"gpipe", GPipe},
}

// Names of all schedules.
func Names() []string {
	var names []string
	for _, s := range registry {
		names = append(names, s.Name)
	}
	return names
}

// ByName finds a schedule.
func ByName(name string) (Schedule, bool) {
	for _, s := range registry {
		if s.Name == name {
			return s, true
		}
	}
	return Schedule{}, false
}
