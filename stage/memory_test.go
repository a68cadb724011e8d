package stage_test

import (
	"errors"
	"testing"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/stage"
)

// TestOutOfMemory: wherever memory runs out, the error says so and everything can be given back.
func TestOutOfMemory(t *testing.T) {
	b := newBench(t, device.F32)
	all := plan.Range{Lo: 0, Hi: len(b.model.Layers)}
	mb := b.batch(true)
	defer release(mb)
	passes := func(account *device.Account) error {
		b.account = account
		w, err := stage.NewWeights(b.device, b.device.Float(), account, b.model, all)
		if err != nil {
			return err
		}
		defer w.Release()
		for i := range b.model.Buckets() {
			set(w.Vector(i), func(int) float64 { return 0.1 })
		}
		c := stage.NewChunk(w, all)
		return b.do(func(k device.Kernels) error {
			y, tape, err := c.Forward(k, mb, device.Slice{})
			if err != nil {
				return err
			}
			y.Release()
			defer tape.ReleaseSaved()
			defer tape.ReleaseStash()
			_, err = c.BackwardInput(k, tape, device.Slice{})
			return err
		})
	}
	free := device.NewAccount("stage.p0.d0", 0)
	if err := passes(free); err != nil {
		t.Fatal(err)
	}
	failures := 0
	for limit := int64(1); ; {
		account := device.NewAccount("stage.p0.d0", limit)
		err := passes(account)
		if account.Held() != 0 {
			t.Fatalf("limit %d: %d bytes are left", limit, account.Held())
		}
		if err == nil {
			if limit != free.Peak() {
				t.Errorf("it runs in %d bytes, and the peak is %d", limit, free.Peak())
			}
			break
		}
		var full *device.OutOfMemory
		if !errors.As(err, &full) || full.Actor != "stage.p0.d0" {
			t.Fatalf("limit %d: %v", limit, err)
		}
		failures++
		limit = full.Held + full.Asked // room for just this one
	}
	if failures < 20 {
		t.Errorf("memory ran out in %d places only", failures)
	}
}
