package device

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The account against a plain map, over random takes and gives.
func TestAccountAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 100).Draw(t, "limit")
		a := NewAccount("shard.p0.d1", limit)
		held := map[Label]int64{}
		var sum, peak int64
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				l, n := Label(rapid.IntRange(0, int(labels)-1).Draw(t, "label")), rapid.Int64Range(0, 60).Draw(t, "bytes")
				err := a.Take(l, n)
				if limit > 0 && sum+n > limit {
					var oom *OutOfMemory
					if !errors.As(err, &oom) || oom.Asked != n || oom.Held != sum || oom.For != l || !strings.Contains(err.Error(), "shard.p0.d1") {
						t.Fatalf("%d bytes with %d of %d held: %v", n, sum, limit, err)
					}
					return
				}
				if err != nil {
					t.Fatalf("%d bytes with %d of %d held: %v", n, sum, limit, err)
				}
				held[l] += n
				sum += n
				peak = max(peak, sum)
			},
			"give": func(t *rapid.T) {
				l := Label(rapid.IntRange(0, int(labels)-1).Draw(t, "label"))
				n := rapid.Int64Range(0, held[l]).Draw(t, "bytes")
				a.Give(l, n)
				held[l] -= n
				sum -= n
			},
			"": func(t *rapid.T) {
				if a.Held() != sum || a.Peak() != peak {
					t.Fatalf("held %d, peak %d; want %d, %d", a.Held(), a.Peak(), sum, peak)
				}
				for l := range labels {
					if a.HeldFor(l) != held[l] {
						t.Fatalf("%s: %d, want %d", l, a.HeldFor(l), held[l])
					}
				}
			},
		})
	})
}

func TestGivingWhatIsNotHeldPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	a := NewAccount("stage.p0.d0", 0)
	if err := a.Take(Messages, 5); err != nil {
		t.Fatal(err)
	}
	a.Give(Gradients, 5)
}

func TestSubStaysInside(t *testing.T) {
	s := Slice{Offset: 3, Len: 10, Type: F64}
	if got := s.Sub(2, 4); got.Offset != 5 || got.Len != 4 || got.Bytes() != 32 {
		t.Errorf("Sub(2, 4) = %+v", got)
	}
	for _, c := range [][2]int{{-1, 2}, {0, -1}, {8, 3}, {11, 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Sub(%d, %d) of 10 elements does not panic", c[0], c[1])
				}
			}()
			s.Sub(c[0], c[1])
		}()
	}
}
