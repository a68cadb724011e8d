package cpu

import (
	"context"

	"github.com/troupe-train/troupe/device"
)

// event completes when its channel is closed.
type event chan struct{}

var _ device.Event = event(nil)

func (e event) Done() bool {
	select {
	case <-e:
		return true
	default:
		return false
	}
}

func (e event) Wait(ctx context.Context) error {
	select {
	case <-e:
		return nil
	default:
	}
	select {
	case <-e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
