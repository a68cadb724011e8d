package plan

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawShares are random shares of n micro-batches for some data ranks.
func drawShares(t *rapid.T, n, ranks int) []int {
	counts := make([]int, ranks)
	for d := range counts {
		counts[d] = 1
	}
	for range n - ranks {
		counts[rapid.IntRange(0, ranks-1).Draw(t, "rank")]++
	}
	return counts
}

// TestReshare: whatever the shares, the programs are proved; those of one actor in a round are the same; the work of
// a rank is that of its micro-batches; and by the shares of the plan nothing changes.
func TestReshare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 4).Draw(t, "data")
		micro := rapid.IntRange(ranks, 12).Draw(t, "micro-batches")
		size := rapid.IntRange(1, 3).Draw(t, "size")
		j := toyJob(micro*size-min(rapid.IntRange(0, size-1).Draw(t, "missing"), (micro-1)*size), size, rapid.IntRange(1, 3).Draw(t, "pipeline"), ranks,
			rapid.SampledFrom([]string{"gpipe", "1f1b"}).Draw(t, "schedule"))
		pl, err := New(j, toy(5), Options{})
		if err != nil {
			t.Fatal(err)
		}
		counts := drawShares(t, micro, ranks)
		s := pl.SharesOf(counts)
		q, err := pl.Reshare(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := q.Shares(); !slices.Equal(got, counts) {
			t.Fatalf("shares %v, want %v", got, counts)
		}
		if err := Check(q); err != nil {
			t.Fatal(err)
		}
		for _, a := range pl.Actors {
			for ph := range Phases {
				r := Round{Step: 3, Phase: ph}
				if ph == TrainPhase {
					r.Shares = s
				}
				got, err := pl.ProgramIn(a.ID, r)
				if err != nil || !reflect.DeepEqual(got, q.Program(a.ID, ph)) {
					t.Fatalf("%s, %s: another program in the round than in the plan: %v", ph, a.ID, err)
				}
			}
		}
		if math.Abs(q.Predicted.FLOPs-pl.Predicted.FLOPs) > 1e-9*pl.Predicted.FLOPs {
			t.Fatalf("a step takes %g operations by %s, and %g otherwise", q.Predicted.FLOPs, s, pl.Predicted.FLOPs)
		}
		// A job that asks for these shares has the same plan.
		j.Layout.Shares = counts
		static, err := New(j, toy(5), Options{})
		if err != nil || !reflect.DeepEqual(static.Programs, q.Programs) || !reflect.DeepEqual(static.Predicted, q.Predicted) {
			t.Fatalf("layout.shares %v gives another plan: %v", counts, err)
		}
	})
}

func TestSharesRefused(t *testing.T) {
	pl, err := New(toyJob(22, 4, 2, 2, "1f1b"), toy(7), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[Shares]string{
		"4,3":                                    "give 7 micro-batches to 2 data ranks; the plan has 6 micro-batches and 2 data ranks",
		"2,2,2":                                  "give 6 micro-batches to 3 data ranks",
		"6,0":                                    "leave data rank 1 without a micro-batch",
		"7,-1":                                   `"-1" where a number from 0`,
		"5,1,":                                   `"" where a number`,
		"5,01":                                   `not written as "5,1"`,
		"x":                                      `"x" where a number`,
		Shares(strings.Repeat("1,", 2000) + "1"): "at most 2048 are legal",
	} {
		if _, err := pl.Reshare(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", s, err, want)
		}
		if _, err := pl.ProgramIn(StageID(0, 0), Round{Phase: TrainPhase, Shares: s}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("program by %s: %v, want %q", s, err, want)
		}
	}
	if _, err := pl.ProgramIn(StageID(0, 0), Round{Phase: EvaluatePhase, Shares: "5,1"}); err == nil {
		t.Error("an evaluation has shares")
	}
	if s := pl.SharesOf([]int{3, 3}); s != "" {
		t.Errorf("the shares of the plan are written %q", s)
	}
}

// TestApportion: no other shares let the last rank end earlier; equal ranks get even shares.
func TestApportion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 4).Draw(t, "ranks")
		n := rapid.IntRange(ranks, 9).Draw(t, "n")
		paces := make([]Pace, ranks)
		for d := range paces {
			paces[d] = Pace{Each: float64(rapid.IntRange(1, 20).Draw(t, "each")), Fixed: float64(rapid.IntRange(0, 30).Draw(t, "fixed"))}
		}
		got := Apportion(n, paces)
		best := math.Inf(1)
		var try func(counts []int, left int)
		try = func(counts []int, left int) {
			if len(counts) == ranks-1 {
				best = min(best, Last(append(counts, left), paces))
				return
			}
			for m := 1; m <= left-(ranks-1-len(counts)); m++ {
				try(append(counts[:len(counts):len(counts)], m), left-m)
			}
		}
		try(nil, n)
		if last := Last(got, paces); last != best {
			t.Fatalf("%v of %v ends at %v; %v is possible", got, paces, last, best)
		}
		for d := range paces {
			paces[d] = paces[0]
		}
		if got, want := Apportion(n, paces), evenShares(n, ranks); !slices.Equal(got, want) {
			t.Fatalf("equal ranks get %v, want %v", got, want)
		}
	})
}
