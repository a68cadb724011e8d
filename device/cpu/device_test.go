package cpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/troupe-train/troupe/device"
)

func TestAccounting(t *testing.T) {
	d := New(Options{})
	a := device.NewAccount("stage.p1.d0", 1000)
	x, err := d.Alloc(a, device.Activations, device.F32, 150)
	if err != nil {
		t.Fatal(err)
	}
	if a.Held() != 600 || a.HeldFor(device.Activations) != 600 {
		t.Errorf("held %d, want 600: exactly what was asked for", a.Held())
	}
	_, err = d.Alloc(a, device.Gradients, device.F64, 51)
	var oom *device.OutOfMemory
	if !errors.As(err, &oom) {
		t.Fatalf("408 bytes over the limit gave %v", err)
	}
	want := "out of memory: stage.p1.d0 asked for 408 bytes for gradients, holds 600 (activations 600) of its limit 1000"
	if err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	y, err := d.Alloc(a, device.Gradients, device.F64, 50)
	if err != nil {
		t.Fatal(err)
	}
	if buffers, bytes := d.InUse(); buffers != 2 || bytes != 1000 {
		t.Errorf("in use: %d buffers, %d bytes; want 2, 1000", buffers, bytes)
	}
	x.Retain()
	x.Release()
	if a.Held() != 1000 {
		t.Errorf("held %d after one of two references was released, want 1000", a.Held())
	}
	x.Release()
	y.Release()
	if buffers, bytes := d.InUse(); buffers != 0 || bytes != 0 || a.Held() != 0 || a.Peak() != 1000 {
		t.Errorf("after release: %d buffers, %d bytes, held %d, peak %d", buffers, bytes, a.Held(), a.Peak())
	}
	if _, err := d.Alloc(a, device.Workspace, device.F32, -1); err == nil {
		t.Error("an allocation of -1 elements succeeds")
	}
}

func TestReleaseTwicePanics(t *testing.T) {
	for name, f := range map[string]func(device.Slice){
		"release": device.Slice.Release, "retain": device.Slice.Retain,
	} {
		s, err := New(Options{}).Alloc(nil, device.Workspace, device.F32, 8)
		if err != nil {
			t.Fatal(err)
		}
		s.Release()
		func() {
			defer func() {
				if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "32 bytes") {
					t.Errorf("%s after the last release: panic %v", name, v)
				}
			}()
			f(s)
		}()
	}
}

func TestSizeClasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.Int64Range(0, 5000), rapid.Int64Range(0, 1<<40)).Draw(t, "size")
		c := classOf(size)
		if got := classSize(c); got < size || got > max(64, size+size/8+64) {
			t.Fatalf("%d bytes are in class %d of %d bytes", size, c, got)
		}
		if c > 0 && classSize(c-1) >= size {
			t.Fatalf("%d bytes are in class %d, and fit into the one before", size, c)
		}
		if classSize(c)%align != 0 {
			t.Fatalf("class %d has %d bytes", c, classSize(c))
		}
	})
}

func TestMemoryIsAlignedAndReused(t *testing.T) {
	d := New(Options{Poison: true})
	for _, n := range []int{0, 1, 17, 1000, 1 << 20} {
		s, err := d.Alloc(nil, device.Workspace, device.F32, n)
		if err != nil {
			t.Fatal(err)
		}
		p := uintptr(unsafe.Pointer(unsafe.SliceData(s.Buffer.Host())))
		if p%align != 0 || len(s.HostBytes()) != 4*n {
			t.Errorf("%d elements: address %#x, %d bytes", n, p, len(s.HostBytes()))
		}
		for i, v := range Float32s(s) {
			if v == v {
				t.Fatalf("element %d of poisoned memory is %v", i, v)
			}
			Float32s(s)[i] = 0
		}
		s.Release()
		again, _ := d.Alloc(nil, device.Workspace, device.F32, n)
		if q := uintptr(unsafe.Pointer(unsafe.SliceData(again.Buffer.Host()))); q != p {
			t.Errorf("%d elements: released memory is not used again", n)
		}
		again.Release()
	}
}

func TestBuffersAreSafeForConcurrentUse(t *testing.T) {
	d := New(Options{})
	a := device.NewAccount("test", 0)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for j := range 500 {
				s, err := d.Alloc(a, device.Label(j%3), device.F32, 1+(i+j)%200)
				if err != nil {
					t.Error(err)
					return
				}
				s.Retain()
				go s.Release()
				Float32s(s)[0] = 1
				s.Release()
			}
		})
	}
	group.Wait()
	for a.Held() != 0 {
		runtime.Gosched()
	}
}

func TestStreamOrder(t *testing.T) {
	r := newRig(t, device.F32, 3)
	var order []int
	var running atomic.Int32
	for i := range 1000 {
		r.s.Do(func(device.Kernels) error {
			if running.Add(1) != 1 {
				t.Error("two pieces of work at the same time")
			}
			order = append(order, i)
			running.Add(-1)
			return nil
		}, func(error) { order = append(order, -i) })
	}
	if err := r.s.Record().Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(order) != 2000 {
		t.Fatalf("%d of 2000 done when the event is", len(order))
	}
	for i := range 1000 {
		if order[2*i] != i || order[2*i+1] != -i {
			t.Fatalf("at %d: work %d, done %d", i, order[2*i], order[2*i+1])
		}
	}
}

func TestStreamErrorsAndPanics(t *testing.T) {
	r := newRig(t, device.F32, 3)
	boom := errors.New("boom")
	done := make(chan error, 1)
	r.s.Do(func(device.Kernels) error { return boom }, func(err error) { done <- err })
	if err := <-done; err != boom {
		t.Errorf("work's error arrives as %v", err)
	}
	var p *device.Panic
	if err := r.try(func(device.Kernels) { explode() }); !errors.As(err, &p) || p.Value != "bang" || !strings.Contains(string(p.Stack), "explode") {
		t.Errorf("a panic in work arrives as %v", err)
	}
	// In a tile, on whichever thread.
	for range 50 {
		err := r.try(func(k device.Kernels) { k.(*kernels[float32]).pool.run(explodingTask(2), 7) })
		if !errors.As(err, &p) || p.Value != "bang" || !strings.Contains(string(p.Stack), "explode") {
			t.Fatalf("a panic in a tile arrives as %v", err)
		}
	}
	// The stream lives on.
	x := r.random(20000)
	r.do(func(k device.Kernels) { k.Add(x, x, x) })
}

type explodingTask int

func (e explodingTask) tile(i int, _ *worker) {
	if i == int(e) {
		explode()
	}
}

//go:noinline
func explode() { panic("bang") }

func TestBadCallsSayWhatIsWrong(t *testing.T) {
	r := newRig(t, device.F32, 1)
	x, wide := r.random(12), r.allocOf(device.F64, 12)
	for want, call := range map[string]func(device.Kernels){
		"Add: b has 11 elements, must be 12":            func(k device.Kernels) { k.Add(x, x, x.Sub(0, 11)) },
		"a slice of f64 where f32 is needed":            func(k device.Kernels) { k.GELU(x, wide) },
		"MatMul: B has 12 elements, must be 16 or more": func(k device.Kernels) { k.MatMul(x, x, x, device.MatMul{M: 3, N: 4, K: 4}) },
		"leading dimension of A is 3, its rows have 4":  func(k device.Kernels) { k.MatMul(x, x, x, device.MatMul{M: 3, N: 3, K: 4, LDA: 3}) },
		"none given":                                            func(k device.Kernels) { k.GELU(x, device.Slice{}) },
		"token 9 at 1; the vocabulary is 0..3":                  func(k device.Kernels) { k.Embed(x, r.ints([]int32{0, 9, 0, 0}), x, x, 1, 4, 3) },
		"Dropout: p 1 ":                                         func(k device.Kernels) { k.Dropout(x, device.Slice{}, x, device.Dropout{P: 1, PerSample: 3}) },
		"Upload: dst has 48 bytes, src 3":                       func(k device.Kernels) { k.Upload(x, make([]byte, 3)) },
		"SumSquares: blocks of 0":                               func(k device.Kernels) { k.SumSquares(wide, x, 0) },
		"dpositions holds 1 positions, the context is 4":        func(k device.Kernels) { k.EmbedBackward(x, x.Sub(0, 3), x, r.ints(make([]int32, 4)), 1, 4, 3) },
		"Attention: shape {Batch:1 Tokens:1 Heads:0 HeadDim:4}": func(k device.Kernels) { k.Attention(x, x, x, device.AttentionShape{Batch: 1, Tokens: 1, HeadDim: 4}) },
		"Copy: dst is 12 of f32, src 12 of f64":                 func(k device.Kernels) { k.Copy(x, wide) },
		"LayerNorm: gain has 12 elements, must be 4":            func(k device.Kernels) { k.LayerNorm(x, x.Sub(0, 3), x.Sub(0, 3), x, x, x, 3, 4) },
		"AdamW: m2 has 5 elements, must be 12":                  func(k device.Kernels) { k.AdamW(x, x.Sub(0, 5), x, x, x, x, x, device.AdamW{Step: 1}) },
	} {
		err := r.try(call)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestEventsAcrossStreams(t *testing.T) {
	d := New(Options{})
	defer d.Close()
	a, _ := d.OpenStream("a", 1)
	b, _ := d.OpenStream("b", 2)
	gate := make(chan struct{})
	var order []string
	step := func(s string) (func(device.Kernels) error, func(error)) {
		return func(device.Kernels) error { order = append(order, s); return nil }, func(error) {}
	}
	a.Do(func(device.Kernels) error { <-gate; return nil }, func(error) {})
	a.Do(step("a"))
	e := a.Record()
	b.Wait(e)
	b.Do(step("b"))
	last := b.Record()
	if e.Done() || last.Done() {
		t.Error("an event completes before what comes before it")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if err := last.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting with a deadline gives %v", err)
	}
	close(gate)
	if err := last.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !e.Done() || fmt.Sprint(order) != "[a b]" {
		t.Errorf("order %v, event done %v", order, e.Done())
	}
}

func TestClose(t *testing.T) {
	d := New(Options{})
	s, err := d.OpenStream("s", 4)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for range 100 {
		s.Do(func(device.Kernels) error { count++; return nil }, func(error) {})
	}
	if err := s.Close(); err != nil || count != 100 {
		t.Errorf("Close: %v after %d of 100 pieces of work", err, count)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	var got error
	s.Do(func(device.Kernels) error { t.Error("work runs on a closed stream"); return nil }, func(err error) { got = err })
	if !errors.Is(got, ErrClosed) || !strings.Contains(got.Error(), "stream s") {
		t.Errorf("work on a closed stream gets %v", got)
	}
	if !s.Record().Done() {
		t.Error("an event of a closed stream never completes")
	}
	if _, err := d.OpenStream("none", 0); err == nil {
		t.Error("a stream of 0 threads opens")
	}
	if _, err := d.OpenStream("left open", 3); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.OpenStream("late", 1); err == nil {
		t.Error("a closed device opens a stream")
	}
}
