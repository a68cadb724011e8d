package arena

import (
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type block struct {
	data []byte
	at   int64
	mark byte
}

// TestBlocks: blocks lie inside the arena, at multiples of Align, and nobody writes into another's; holes and blocks
// together are the arena; and when all is back there is one hole again.
func TestBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, err := New(0)
		if err != nil {
			t.Fatal(err)
		}
		size := a.Size()
		var taken []block
		mark := byte(0)
		check := func(b block) {
			for _, x := range b.data {
				if x != b.mark {
					t.Fatalf("%d stands in the block of %d", x, b.mark)
				}
			}
		}
		give := func(i int) {
			check(taken[i])
			a.Give(taken[i].at, int64(len(taken[i].data)))
			taken = slices.Delete(taken, i, i+1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				want := rapid.Int64Range(0, 300_000).Draw(t, "size")
				data, at, ok := a.Take(want)
				if !ok {
					for _, h := range a.holes {
						if h.size >= want {
							t.Fatalf("%d bytes do not fit into %v", want, a.holes)
						}
					}
					return
				}
				if int64(len(data)) < want || at%Align != 0 || at+int64(len(data)) > size || &data[0] != &a.data[at] {
					t.Fatalf("%d bytes at %d for %d", len(data), at, want)
				}
				mark++
				for i := range data {
					data[i] = mark
				}
				taken = append(taken, block{data, at, mark})
			},
			"give": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip("nothing is taken")
				}
				give(rapid.IntRange(0, len(taken)-1).Draw(t, "which"))
			},
			"": func(t *rapid.T) {
				var sum int64
				end := int64(-1)
				for _, h := range a.holes {
					if h.size <= 0 || h.at <= end || h.at+h.size > size {
						t.Fatalf("holes %v of %d bytes", a.holes, size)
					}
					sum, end = sum+h.size, h.at+h.size
				}
				for _, b := range taken {
					sum += int64(len(b.data))
				}
				if sum != size {
					t.Fatalf("holes and blocks are %d of %d bytes", sum, size)
				}
			},
		})
		a.Close()
		if _, _, ok := a.Take(1); ok {
			t.Fatal("a block is taken from an arena that is closed")
		}
		for len(taken) > 0 {
			if a.data == nil {
				t.Fatal("the memory went back before the last block")
			}
			give(0)
		}
		if a.data != nil || !slices.Equal(a.holes, []hole{{0, size}}) {
			t.Fatalf("in the end the memory is back: %v; holes %v", a.data == nil, a.holes)
		}
	})
}

// TestAgain: the same blocks in the same order come out at the same offsets, and take nothing from the Go heap.
func TestAgain(t *testing.T) {
	a, err := New(2 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	sizes := []int64{4000, 280_000, 20, 1_600_000, 64, 12_345}
	var first, now [6]int64
	step := func() {
		for i, n := range sizes {
			_, at, ok := a.Take(n)
			if !ok {
				t.Fatalf("%d bytes do not fit", n)
			}
			now[i] = at
		}
		for _, i := range []int{1, 3, 0, 5, 4, 2} {
			a.Give(now[i], max(Align, (sizes[i]+Align-1)/Align*Align))
		}
	}
	step()
	first = now
	if n := testing.AllocsPerRun(20, step); n != 0 {
		t.Errorf("a step takes %v objects", n)
	}
	if now != first {
		t.Errorf("offsets %v after %v", now, first)
	}
}

// TestNew: the sizes that are legal.
func TestNew(t *testing.T) {
	for _, n := range []int64{-1, maxSize + 1} {
		if _, err := New(n); err == nil {
			t.Errorf("an arena of %d bytes", n)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	a, err := New(1 << 40) // more than any machine has: what is not touched takes no room
	if err != nil {
		t.Skip(err)
	}
	a.Close()
}
