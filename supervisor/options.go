package supervisor

import (
	"sync"

	"github.com/troupe-train/troupe/checkpoint"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan/fault"
)

// Option changes how a job is run.
type Option func(*options)

type options struct {
	model    *model.Model
	source   Source
	device   device.Device
	mode     checkpoint.Mode
	stopAt   int64
	progress func(Progress)
	faults   []fault.Fault
}

func newOptions(list []Option) options {
	o := options{progress: func(Progress) {}}
	for _, f := range list {
		f(&o)
	}
	var mu sync.Mutex
	told := o.progress
	o.progress = func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		told(p)
	}
	return o
}

// note tells people a line.
func (o options) note(line string) { o.progress(Progress{Note: &line}) }

// WithModel trains a model of the caller's instead of the one that the job names.
func WithModel(m *model.Model) Option { return func(o *options) { o.model = m } }

// WithData trains on the caller's windows instead of the text that the job names.
func WithData(s Source) Option { return func(o *options) { o.source = s } }

// WithDevice runs on a device of the caller's, who closes it, instead of the CPU.
func WithDevice(d device.Device) Option { return func(o *options) { o.device = d } }

// WithResume goes on from the newest complete checkpoint in save.dir.
func WithResume() Option { return func(o *options) { o.mode = checkpoint.Resume } }

// WithOverwrite starts afresh and removes the checkpoints in save.dir. Without it and without
// WithResume, a save.dir that holds anything is refused.
func WithOverwrite() Option { return func(o *options) { o.mode = checkpoint.Overwrite } }

// WithStopAt stops the run cleanly, with a checkpoint, when steps steps are committed.
func WithStopAt(steps int64) Option { return func(o *options) { o.stopAt = steps } }

// WithFaults lets the given faults strike the run.
func WithFaults(faults []fault.Fault) Option { return func(o *options) { o.faults = faults } }

// WithProgress is told of what happens, one call at a time.
func WithProgress(f func(Progress)) Option { return func(o *options) { o.progress = f } }
