package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/device/random"
)

// Repetitions is how often a kernel is timed where nothing else is said; the median counts.
const Repetitions = 15

// repetition is about how long one repetition takes: short kernels run several times in it.
const repetition = 2 * time.Millisecond

// warmth is for how long a kernel runs before a repetition: in a step kernels follow each other and find the workers awake and each
// on a processor of its own, which a scheduler needs some milliseconds for.
const warmth = 4 * time.Millisecond

// ParseLevel finds a level of the kernels of this processor by name; the empty name is the highest.
func ParseLevel(name string) (cpu.Level, error) {
	if name == "" {
		return cpu.Best, nil
	}
	var names []string
	for _, l := range cpu.Levels() {
		if l.String() == name {
			return l, nil
		}
		names = append(names, l.String())
	}
	return 0, fmt.Errorf("level %q; this processor has %s", name, strings.Join(names, ", "))
}

// rig is a device with one stream.
type rig struct {
	device  *cpu.Device
	stream  device.Stream
	store   device.DType // of tensors
	threads int
	seed    uint64
	held    []device.Slice

	counting bool // nothing is allocated, only counted
	counted  int64
}

func newRig(level cpu.Level, store device.DType, threads int) (*rig, error) {
	d := cpu.New(cpu.Options{Float: device.F32, Level: level})
	s, err := d.OpenStream("bench", threads)
	if err != nil {
		return nil, err
	}
	return &rig{device: d, stream: s, store: store, threads: threads}, nil
}

func (r *rig) close() error {
	r.free()
	return r.device.Close()
}

// free gives back all that was allocated.
func (r *rig) free() {
	for _, s := range r.held {
		s.Release()
	}
	r.held = nil
}

// alloc is n elements that are 0.
func (r *rig) alloc(t device.DType, n int) device.Slice {
	if r.counting {
		r.counted += int64(t.Size()) * int64(n)
		return device.Slice{Type: t, Len: n}
	}
	s, err := r.device.Alloc(nil, device.Workspace, t, n)
	if err != nil {
		panic(err) // there is no account that could be full
	}
	clear(s.HostBytes())
	r.held = append(r.held, s)
	return s
}

// room is a tensor of n elements that are 0.
func (r *rig) room(n int) device.Slice { return r.alloc(r.store, n) }

// floats is a tensor of n numbers, uniform in [-1, 1); statistics are the same in float32.
func (r *rig) floats(n int) device.Slice     { return r.floatsOf(r.store, n) }
func (r *rig) statistics(n int) device.Slice { return r.floatsOf(device.F32, n) }

func (r *rig) floatsOf(t device.DType, n int) device.Slice {
	s := r.alloc(t, n)
	if r.counting {
		return s
	}
	r.seed++
	for i := range n {
		v := float32(2*random.Uniform(random.Key(r.seed), uint64(i)) - 1)
		if t == device.BF16 {
			cpu.BFloat16s(s)[i] = cpu.Round(v)
		} else {
			cpu.Float32s(s)[i] = v
		}
	}
	return s
}

// ints is n numbers in [0, below).
func (r *rig) ints(n, below int) device.Slice {
	s := r.alloc(device.I32, n)
	if r.counting {
		return s
	}
	r.seed++
	v := cpu.Int32s(s)
	for i := range v {
		v[i] = int32(random.Uniform(random.Key(r.seed), uint64(i)) * float64(below))
	}
	return s
}

// seconds runs a kernel times times, after it has run it as often as warm says, and returns the time of one.
func (r *rig) seconds(kernel func(device.Kernels), warm, times int) (float64, error) {
	var elapsed time.Duration
	done := make(chan error, 1)
	r.stream.Do(func(k device.Kernels) error {
		for range warm {
			kernel(k)
		}
		began := time.Now()
		for range times {
			kernel(k)
		}
		elapsed = time.Since(began)
		return nil
	}, func(err error) { done <- err })
	err := <-done
	return elapsed.Seconds() / float64(times), err
}

// timing is what a kernel and its rivals took, as medians over the repetitions.
type timing struct {
	seconds []float64 // by kernel
	peak    float64   // floating-point operations a second
}

// time times kernels in turns with each other and with the peak.
func (r *rig) time(ctx context.Context, repetitions int, kernels ...func(device.Kernels)) (timing, error) {
	if repetitions == 0 {
		repetitions = Repetitions
	}
	times, warm := make([]int, len(kernels)), make([]int, len(kernels))
	for i, kernel := range kernels {
		if _, err := r.seconds(kernel, 0, 1); err != nil { // the first call grows scratch memory
			return timing{}, err
		}
		s, err := r.seconds(kernel, 1, 1)
		if err != nil {
			return timing{}, err
		}
		s = max(s, 1e-7)
		times[i], warm[i] = max(1, int(repetition.Seconds()/s)), int(warmth.Seconds()/s)
	}
	samples := make([][]float64, len(kernels))
	var peaks []float64
	for range repetitions {
		if err := ctx.Err(); err != nil {
			return timing{}, err
		}
		peaks = append(peaks, peak(r.threads, r.store, r.device.Level()))
		for i, kernel := range kernels {
			s, err := r.seconds(kernel, warm[i], times[i])
			if err != nil {
				return timing{}, err
			}
			samples[i] = append(samples[i], s)
		}
	}
	t := timing{peak: median(peaks)}
	for _, s := range samples {
		t.seconds = append(t.seconds, median(s))
	}
	return t, nil
}

// median is the lower one where there are two.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[(len(v)-1)/2]
}
