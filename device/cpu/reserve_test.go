package cpu

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-train/troupe/device"
)

// TestReserve: an account is charged what it allocates whether that fits into what was set aside or
// not; nobody writes into the memory of another; and in the end all is back.
func TestReserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := New(Options{})
		defer d.Close()
		account := device.NewAccount("stage.p0.d0", 0)
		free, err := d.Reserve(account, rapid.Int64Range(0, 1<<20).Draw(t, "bytes"))
		if err != nil {
			t.Fatal(err)
		}
		freed := false
		var held []device.Slice
		marks := map[device.Buffer]int32{}
		next := int32(0)
		release := func(i int) {
			s := held[i]
			for _, v := range Int32s(s) {
				if v != marks[s.Buffer] {
					t.Fatalf("%d stands in the memory of %d", v, marks[s.Buffer])
				}
			}
			s.Release()
			held = append(held[:i], held[i+1:]...)
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				s, err := d.Alloc(account, device.Activations, device.I32, rapid.IntRange(0, 150_000).Draw(t, "elements"))
				if err != nil {
					t.Fatal(err)
				}
				next++
				for i := range Int32s(s) {
					Int32s(s)[i] = next
				}
				marks[s.Buffer] = next
				held = append(held, s)
			},
			"release": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held")
				}
				release(rapid.IntRange(0, len(held)-1).Draw(t, "which"))
			},
			"free": func(t *rapid.T) {
				if freed {
					t.Skip("it is free")
				}
				free()
				freed = true
			},
			"": func(t *rapid.T) {
				var want int64
				for _, s := range held {
					want += s.Bytes()
				}
				buffers, bytes := d.InUse()
				if account.Held() != want || bytes != want || buffers != len(held) {
					t.Fatalf("%d bytes are charged and %d in %d buffers in use, for %d in %d", account.Held(), bytes, buffers, want, len(held))
				}
			},
		})
		for len(held) > 0 {
			release(0)
		}
		if !freed {
			free()
		}
	})
}

// TestReserveAgain: a step like the one before gets the same buffers, and takes nothing from the Go heap.
func TestReserveAgain(t *testing.T) {
	d := New(Options{})
	defer d.Close()
	account := device.NewAccount("stage.p0.d0", 0)
	sizes := []int{1000, 70_000, 5, 400_000, 70_000, 5}
	bytes := 0
	for _, n := range sizes {
		bytes += 4 * n
	}
	free, err := d.Reserve(account, int64(bytes))
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	held := make([]device.Slice, 0, len(sizes))
	var first []device.Buffer
	step := func() {
		held = held[:0]
		for _, n := range sizes {
			s, err := d.Alloc(account, device.Activations, device.F32, n)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, s)
		}
		for i, s := range held {
			if s.Buffer.(*buffer).reserve == nil {
				t.Fatalf("buffer %d did not fit", i)
			}
			if i < len(first) && first[i] != s.Buffer {
				t.Fatalf("buffer %d is another one", i)
			}
		}
		for _, i := range []int{1, 3, 0, 5, 4, 2} {
			held[i].Release()
		}
	}
	step()
	for _, s := range held {
		first = append(first, s.Buffer)
	}
	if n := testing.AllocsPerRun(20, step); n != 0 {
		t.Errorf("a step takes %v objects", n)
	}
}

func TestReserveRefuses(t *testing.T) {
	d := New(Options{})
	defer d.Close()
	account := device.NewAccount("shard.p0.d0", 0)
	if _, err := d.Reserve(account, -8); err == nil {
		t.Error("-8 bytes are set aside")
	}
	free, err := d.Reserve(account, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reserve(account, 1); err == nil {
		t.Error("memory is set aside twice for one account")
	}
	free()
	if free, err = d.Reserve(account, 1); err != nil {
		t.Fatal(err)
	}
	free()
}
