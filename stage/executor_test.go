package stage_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/stage"
)

// rig runs the operations of a stage that holds the whole model.
type rig struct {
	*bench
	plan *plan.Plan
	x    *stage.Executor
}

var alone = plan.StageID(0, 0)

func newRig(t *testing.T) *rig { return newRigOf(t, device.F32) }

// newRigOf stores tensors in a type.
func newRigOf(t *testing.T, store device.DType) *rig {
	t.Helper()
	b := newBench(t, store)
	job := plan.Defaults()
	job.Name = "rig"
	job.Train.Steps, job.Train.Batch, job.Train.MicroBatch, job.Train.Evaluate.Batch = 1, 2*rows, rows, rows
	job.Train.Precision = store.String()
	p, err := plan.New(job, b.model, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := stage.NewExecutor(p, alone, b.device, b.account)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{b, p, x}
	for i, bucket := range b.model.Buckets() {
		piece := r.tensor(bucket.Len, func(e int) float64 { return 0.01 * float64(e%7) })
		out, err := r.run(plan.InitPhase, r.op(plan.InitPhase, plan.Load, i), piece)
		if err != nil || len(out) != 1 || out[0] != nil {
			t.Fatalf("load: %v, %v", out, err)
		}
		piece.Release()
	}
	return r
}

// op is the n-th operation of a kind.
func (r *rig) op(ph plan.Phase, kind plan.OpKind, n int) *plan.Op {
	r.t.Helper()
	ops := r.plan.Program(alone, ph).Ops
	for i := range ops {
		if ops[i].Kind == kind {
			if n == 0 {
				return &ops[i]
			}
			n--
		}
	}
	r.t.Fatalf("there is no %s", kind)
	return nil
}

func (r *rig) run(ph plan.Phase, op *plan.Op, in ...machine.Payload) (out []machine.Payload, err error) {
	done := make(chan error, 1)
	r.stream.Do(func(k device.Kernels) (err error) {
		out, err = machine.Launch{Run: &machine.Run{Round: plan.Round{Phase: ph}, Op: op, In: in}}.Perform(k, r.x)
		return err
	}, func(err error) { done <- err })
	return out, <-done
}

func (r *rig) tensor(n int, of func(int) float64) machine.Tensor {
	r.t.Helper()
	s, err := r.device.Alloc(r.account, device.Messages, r.store, n)
	if err != nil {
		r.t.Fatal(err)
	}
	set(s, of)
	return machine.Tensor{Slice: s}
}

// TestExecutor: two micro-batches through a stage by hand. Values live as long as the plan says, and in the
// end parameters alone are left; Close gives those back too.
func TestExecutor(t *testing.T) {
	r := newRig(t)
	parameters := r.account.Held()
	if got := r.account.HeldFor(device.Parameters); got != parameters {
		t.Errorf("%d of %d bytes are parameters", got, parameters)
	}
	mb := r.batch(true)
	tokens, targets := machine.Tensor{Slice: mb.Tokens}, machine.Tensor{Slice: mb.Targets}
	var grads [2][]machine.Payload
	for m := range 2 {
		out, err := r.run(plan.TrainPhase, r.op(plan.TrainPhase, plan.Forward, m), tokens, targets)
		if err != nil {
			t.Fatal(err)
		}
		if len(out) != 2 || out[0] != nil {
			t.Fatalf("forward returns %v", out)
		}
		if loss := out[1].(machine.Tensor); loss.Type != device.F64 || loss.Len != 1 {
			t.Fatalf("the loss is %d of %s", loss.Len, loss.Type)
		}
		out[1].Release()
		if _, err = r.run(plan.TrainPhase, r.op(plan.TrainPhase, plan.BackwardInput, m), nil); err != nil {
			t.Fatal(err)
		}
		if grads[m], err = r.run(plan.TrainPhase, r.op(plan.TrainPhase, plan.BackwardWeight, m), nil, nil); err != nil {
			t.Fatal(err)
		}
		if n := r.account.HeldFor(device.Activations); n != 0 {
			t.Errorf("%d bytes of activations after the last pass", n)
		}
	}
	release(mb)
	lower, upper := grads[0][0].(machine.Tensor), grads[1][0].(machine.Tensor)
	before := get(lower.Slice)
	out, err := r.run(plan.TrainPhase, r.op(plan.TrainPhase, plan.Add, 0), lower, upper)
	if err != nil {
		t.Fatal(err)
	}
	sum := out[0].(machine.Tensor)
	if sum.Buffer != lower.Buffer {
		t.Error("the sum is not in the memory of the lower child")
	}
	for i, v := range get(upper.Slice) {
		if got, want := get(sum.Slice)[i], float64(float32(before[i])+float32(v)); got != want {
			t.Fatalf("sum[%d] is %v, want %v", i, got, want)
		}
	}
	sum.Release()
	for _, g := range slices.Concat(grads[0], grads[1]) {
		g.Release()
	}
	if n := r.account.Held(); n != parameters {
		t.Errorf("%d bytes are left beside the parameters", n-parameters)
	}
	r.x.Close()
	if n := r.account.Held(); n != 0 {
		t.Errorf("%d bytes are left after Close", n)
	}
}

// TestEvaluate: a forward pass on held-out text keeps nothing.
func TestEvaluate(t *testing.T) {
	r := newRig(t)
	parameters := r.account.Held()
	mb := r.batch(true)
	out, err := r.run(plan.EvaluatePhase, r.op(plan.EvaluatePhase, plan.Forward, 0), machine.Tensor{Slice: mb.Tokens}, machine.Tensor{Slice: mb.Targets})
	if err != nil {
		t.Fatal(err)
	}
	release(mb)
	out[0].Release()
	if n := r.account.Held(); n != parameters {
		t.Errorf("%d bytes are left", n-parameters)
	}
	r.x.Close()
}

// TestWrongInputs: what is not the value that it should be is an error that says so.
func TestWrongInputs(t *testing.T) {
	r := newRig(t)
	mb := r.batch(true)
	good := machine.Tensor{Slice: mb.Tokens}
	short := machine.Tensor{Slice: mb.Targets.Sub(1, rows*context-1)}
	floats := r.tensor(rows*context, func(int) float64 { return 0 })
	held := r.account.Held()
	forward := r.op(plan.TrainPhase, plan.Forward, 0)
	for _, c := range []struct {
		name string
		op   *plan.Op
		in   []machine.Payload
		want string
	}{
		{"too short", forward, []machine.Payload{good, short}, "targets micro-batch 0 has 11 elements of i32, must have 12 of i32"},
		{"wrong type", forward, []machine.Payload{floats, good}, "tokens micro-batch 0 has 12 elements of f32, must have 12 of i32"},
		{"no tensor", forward, []machine.Payload{good, machine.Blob("x")}, "not a tensor"},
		{"backward before forward", r.op(plan.TrainPhase, plan.BackwardInput, 0), []machine.Payload{nil}, "saved chunk 0 micro-batch 0 is not there"},
		{"weights before inputs", r.op(plan.TrainPhase, plan.BackwardWeight, 0), []machine.Payload{nil, nil}, "stashed chunk 0 micro-batch 0 is not there"},
		{"a piece that does not fit", r.op(plan.InitPhase, plan.Load, 0), []machine.Payload{floats}, "must have"},
		{"an operation of somebody else", &plan.Op{Kind: plan.Decide}, nil, "a stage has no operation decide"},
	} {
		if c.op.Kind == plan.BackwardWeight {
			out, err := r.run(plan.TrainPhase, forward, good, machine.Tensor{Slice: mb.Targets})
			if err != nil {
				t.Fatal(err)
			}
			out[1].Release()
		}
		if _, err := r.run(plan.TrainPhase, c.op, c.in...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one about %q", c.name, err, c.want)
		}
	}
	r.x.Free(plan.Round{}, plan.Value{Kind: plan.Saved, Piece: -1})
	if n := r.account.Held(); n != held {
		t.Errorf("%d bytes are left", n-held)
	}
	for _, id := range []plan.ActorID{"trainer", "shard.p0.d0", "stage.p1.d0", "stage"} {
		if _, err := stage.NewExecutor(r.plan, id, r.device, r.account); err == nil {
			t.Errorf("%s is taken for a stage", id)
		}
	}
	floats.Release()
	release(mb)
	r.x.Close()
}
