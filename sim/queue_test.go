package sim

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestQueue: moments leave by time and then by number, however pushes and pops mix.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var want []moment
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(want) > 0 && rapid.IntRange(0, 2).Draw(t, "pop") == 0 {
				slices.SortFunc(want, func(a, b moment) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.number, b.number)) })
				if got := q.pop(); got.number != want[0].number || got.at != want[0].at {
					t.Fatalf("moment %d at %s, want %d at %s", got.number, got.at, want[0].number, want[0].at)
				}
				want = want[1:]
				continue
			}
			m := moment{at: time.Duration(rapid.IntRange(0, 5).Draw(t, "at")), number: i}
			q.push(m)
			want = append(want, m)
		}
		if len(q) != len(want) {
			t.Fatalf("%d moments are left, want %d", len(q), len(want))
		}
	})
}
