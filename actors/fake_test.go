package actors

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen before it fails.
const patience = 20 * time.Second

// fakeMachine does what its function says.
type fakeMachine struct {
	id     plan.ActorID
	handle func(machine.Event) []machine.Effect
	wait   func() machine.Wait
}

func (m *fakeMachine) ID() plan.ActorID                        { return m.id }
func (m *fakeMachine) Handle(e machine.Event) []machine.Effect { return m.handle(e) }
func (m *fakeMachine) Waiting() machine.Wait {
	if m.wait == nil {
		return machine.Wait{}
	}
	return m.wait()
}

// fakeExecutor does what its function says.
type fakeExecutor struct {
	run  func(round plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error)
	free func(plan.Value)
}

func (e *fakeExecutor) Run(_ device.Kernels, r plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	return e.run(r, op, in)
}

func (e *fakeExecutor) Free(_ plan.Round, v plan.Value) {
	if e.free != nil {
		e.free(v)
	}
}

// fakeStream runs work on a goroutine of its own.
type fakeStream struct {
	queue chan func()
	ended chan struct{}
}

func newFakeStream() *fakeStream {
	s := &fakeStream{queue: make(chan func(), 1024), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for f := range s.queue {
			f()
		}
	}()
	return s
}

func (s *fakeStream) Do(work func(device.Kernels) error, done func(error)) {
	s.queue <- func() {
		var err error
		func() {
			defer func() {
				if v := recover(); v != nil {
					err = &device.Panic{Value: v, Stack: []byte("stack")}
				}
			}()
			err = work(nil)
		}()
		done(err)
	}
}

func (s *fakeStream) Record() device.Event { panic("not needed") }
func (s *fakeStream) Wait(device.Event)    { panic("not needed") }
func (s *fakeStream) Close() error {
	close(s.queue)
	<-s.ended
	return nil
}

// fakeDevice has memory of the Go heap and counts references.
type fakeDevice struct{}

type fakeBuffer struct {
	mu      sync.Mutex
	refs    int
	bytes   []byte
	account *device.Account
	label   device.Label
}

func (b *fakeBuffer) Size() int64  { return int64(len(b.bytes)) }
func (b *fakeBuffer) Host() []byte { return b.bytes }
func (b *fakeBuffer) Retain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refs <= 0 {
		panic("retain after the last release")
	}
	b.refs++
}

func (b *fakeBuffer) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refs--
	if b.refs < 0 {
		panic("one release too many")
	}
	if b.refs == 0 {
		b.account.Give(b.label, b.Size())
		clear(b.bytes) // whoever still reads it sees it
	}
}

func (b *fakeBuffer) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refs
}

func (fakeDevice) Name() string        { return "fake" }
func (fakeDevice) Float() device.DType { return device.F32 }
func (fakeDevice) Alloc(a *device.Account, l device.Label, t device.DType, n int) (device.Slice, error) {
	size := n * t.Size()
	if err := a.Take(l, int64(size)); err != nil {
		return device.Slice{}, err
	}
	return device.Slice{Buffer: &fakeBuffer{refs: 1, bytes: make([]byte, size), account: a, label: l}, Len: n, Type: t}, nil
}

func (fakeDevice) OpenStream(string, int) (device.Stream, error) { panic("not needed") }
func (fakeDevice) Close() error                                  { return nil }

// tensor makes a payload of n floats whose bytes follow from seed.
func tensor(t testing.TB, a *device.Account, n int, seed byte) machine.Tensor {
	s, err := fakeDevice{}.Alloc(a, device.Activations, device.F32, n)
	if err != nil {
		t.Fatal(err)
	}
	fill(s.HostBytes(), seed)
	return machine.Tensor{Slice: s}
}

func fill(b []byte, seed byte) {
	x := uint64(seed)*0x9e3779b97f4a7c15 + 1
	var word [8]byte
	for len(b) > 0 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(word[:], x^x>>29)
		b = b[copy(b, word[:]):]
	}
}

// discard is a machine's answer to everything that it has no use for.
func discard(e machine.Event) []machine.Effect { return machine.Discard(e) }

// cast is a Node with what its actors need.
type cast struct {
	*Node
	t       testing.TB
	stopped chan error
	lines   *lines
	streams []*fakeStream
}

// lines collects log lines.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func (l *lines) get() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.all...)
}

func newCast(t testing.TB, o Options) *cast {
	t.Helper()
	c := &cast{t: t, stopped: make(chan error, 16), lines: &lines{}}
	if o.Job == "" {
		o.Job = "test"
	}
	o.Log = c.lines.add
	if o.Observer.Stop == nil {
		o.Observer.Stop = func(err error) { c.stopped <- err }
	}
	n, err := NewNode(o)
	if err != nil {
		t.Fatal(err)
	}
	c.Node = n
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		for _, s := range c.streams {
			s.Close()
		}
	})
	return c
}

// play spawns an actor with a machine of one function, and returns its account.
func (c *cast) play(id plan.ActorID, handle func(machine.Event) []machine.Effect, e machine.Executor) *device.Account {
	c.t.Helper()
	return c.spawn(&fakeMachine{id: id, handle: handle}, e)
}

func (c *cast) spawn(m machine.Machine, e machine.Executor) *device.Account {
	c.t.Helper()
	return c.spawnOn(fakeDevice{}, m, e)
}

func (c *cast) spawnOn(d device.Device, m machine.Machine, e machine.Executor) *device.Account {
	c.t.Helper()
	if e == nil {
		e = &fakeExecutor{run: func(plan.Round, *plan.Op, []machine.Payload) ([]machine.Payload, error) {
			return nil, fmt.Errorf("nothing is to be run")
		}}
	}
	a := device.NewAccount(string(m.ID()), 0)
	s := newFakeStream()
	c.streams = append(c.streams, s)
	err := c.Spawn(Actor{Machine: m, Executor: e, Device: d, Account: a, Stream: s})
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

// place puts actors on node 0.
func place(ids ...plan.ActorID) []plan.Actor {
	var all []plan.Actor
	for _, id := range ids {
		all = append(all, plan.Actor{ID: id})
	}
	return all
}

// receive waits for a value from a channel.
func receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s after %s", what, patience)
		panic("unreachable")
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not after %s: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

func named(from, to plan.ActorID, step int64, v plan.Value) machine.Name {
	return machine.Name{Job: "test", Round: plan.Round{Step: step, Phase: plan.TrainPhase}, From: from, To: to, Value: v}
}
