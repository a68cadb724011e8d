package plan

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestFits: a limit that the busiest actor just meets is enough, and a byte less is refused with the numbers and a way out.
func TestFits(t *testing.T) {
	p, err := New(toyJob(4, 1, 3, 2, "1f1b"), toy(5), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var most ActorPrediction
	for _, a := range p.Predicted.Actors {
		if a.Peak() > most.Peak() {
			most = a
		}
	}
	for _, limit := range []int64{0, most.Peak()} {
		p.Job.Train.MemoryLimit = limit
		if err := p.Fits(); err != nil {
			t.Errorf("%d bytes: %v", limit, err)
		}
	}
	p.Job.Train.MemoryLimit = most.Peak() - 1
	err = p.Fits()
	if !errors.As(err, new(*JobError)) {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{"train.memory_limit", fmt.Sprint(most.Peak() - 1), fmt.Sprintf("%s %d", most.ID, most.Peak()), "change "} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
	p.Job.Train.MemoryLimit = 1
	if err := p.Fits(); !strings.Contains(err.Error(), fmt.Sprintf("and %d more", len(p.Predicted.Actors)-overMax)) {
		t.Errorf("%v", err)
	}
}
