package cpu

import (
	"fmt"
	"sync"

	"github.com/troupe-train/troupe/device"
)

// Options of a device.
type Options struct {
	// Float is the type that kernels work in: device.F32 (also the zero value) or device.F64.
	Float device.DType
	// Level is the level of the float32 kernels; Best (the zero value) is the highest that the processor has.
	Level Level
	// Poison fills new memory with NaN (integers with -1), so that a read of memory that was never written shows.
	Poison bool
}

// Device is the CPU. It is safe for concurrent use.
type Device struct {
	float    device.DType
	level    Level
	poison   bool
	memory   memory
	reserves reserves

	mu      sync.Mutex
	streams map[*Stream]struct{}
	closed  bool
}

var _ device.Device = (*Device)(nil)

// New opens the CPU as a device. It panics on a Float that is neither F32 nor F64, and on a Level
// that the processor does not have.
func New(o Options) *Device {
	switch o.Float {
	case 0:
		o.Float = device.F32
	case device.F32, device.F64:
	default:
		panic(fmt.Sprintf("cpu: kernels work in f32 or f64, not in %s", o.Float))
	}
	level, err := o.Level.resolve()
	if err != nil {
		panic(err.Error())
	}
	return &Device{float: o.Float, level: level, poison: o.Poison, streams: map[*Stream]struct{}{}}
}

func (d *Device) Name() string { return "cpu" }

func (d *Device) Float() device.DType { return d.float }

// Level is the level of the float32 kernels.
func (d *Device) Level() Level { return d.level }

// OpenStream starts a stream of threads threads; there must be at least one.
func (d *Device) OpenStream(name string, threads int) (device.Stream, error) {
	if threads < 1 {
		return nil, fmt.Errorf("cpu: stream %s: %d threads; there must be at least 1", name, threads)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("cpu: stream %s: the device is closed", name)
	}
	s := newStream(d, name, threads)
	d.streams[s] = struct{}{}
	return s, nil
}

// Close closes the streams that are still open and forgets unused memory. Buffers stay valid.
func (d *Device) Close() error {
	d.mu.Lock()
	d.closed = true
	var open []*Stream
	for s := range d.streams {
		open = append(open, s)
	}
	d.mu.Unlock()
	for _, s := range open {
		if err := s.Close(); err != nil {
			return err
		}
	}
	d.memory.forget()
	return nil
}

func (d *Device) closedStream(s *Stream) {
	d.mu.Lock()
	delete(d.streams, s)
	d.mu.Unlock()
}
