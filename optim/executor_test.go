package optim_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/optim"
	"github.com/troupe-train/troupe/plan"
)

// gradient is a made-up gradient of an element of a bucket in a step.
func gradient(step int64, bucket, element int) float32 {
	return float32(random.Normal(random.Key(uint64(step), uint64(bucket)), uint64(element)))
}

// train runs two steps on all shards of a plan, with made-up gradients and a fixed clip factor, and
// returns weights and moments by parameter, and the norm of each step.
func train(t *testing.T, p *plan.Plan) (map[string][]float32, []float64) {
	t.Helper()
	b := newBench(t, p)
	for _, id := range b.owners() {
		release(b.must(id, plan.InitPhase, 0, plan.Restore, 0)...)
		b.must(mirror(id), plan.InitPhase, 0, plan.Restore, 0)
	}
	var sizes []float64
	for step := range int64(2) {
		norms := map[plan.ActorID][]float64{}
		grads := map[plan.ActorID][]machine.Payload{}
		for _, id := range b.owners() {
			rank, d, _ := id.Rank()
			b.must(id, plan.TrainPhase, step, plan.Advance, 0)
			release(b.must(mirror(id), plan.TrainPhase, step, plan.Advance, 0)...)
			for _, part := range p.Parts(rank, d) {
				g := make([]float32, part.Range.Len())
				for i := range g {
					g[i] = gradient(step, part.Bucket, part.Range.Lo+i)
				}
				grads[id] = append(grads[id], b.tensor(g))
			}
			out := b.must(id, plan.TrainPhase, step, plan.SquareNorm, 0, grads[id]...)
			norms[id] = slices.Clone(cpu.Float64s(out[0].(machine.Tensor).Slice))
			release(out...)
		}
		norm, err := optim.GlobalNorm(p, norms)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, norm)
		verdict := b.scalar(0.25)
		for id := range grads {
			rank, d, _ := id.Rank()
			for i, part := range p.Parts(rank, d) {
				release(b.must(id, plan.TrainPhase, step, plan.Update, part.Bucket, grads[id][i], verdict)...)
			}
			b.must(mirror(id), plan.TrainPhase, step, plan.Hold, 0, append(grads[id], verdict)...)
			release(grads[id]...)
		}
		release(verdict)
	}
	// Every element of every state must come, once.
	moments := optim.Rules[p.Job.Train.Optimizer.Kind].Moments
	values := map[string][]float32{}
	for _, id := range b.owners() {
		rank, d, _ := id.Rank()
		parts := p.Parts(rank, d)
		b.must(id, plan.SnapshotPhase, 2, plan.Advance, 0)
		out := b.must(id, plan.SnapshotPhase, 2, plan.Collect, 0)
		state := cpu.Float32s(out[0].(machine.Tensor).Slice)
		// The mirror has the same state, and publishes the same weights.
		pieces := b.must(mirror(id), plan.SnapshotPhase, 2, plan.Advance, 0)
		copied := b.must(mirror(id), plan.SnapshotPhase, 2, plan.Offer, 0)
		if !slices.Equal(cpu.Float32s(copied[0].(machine.Tensor).Slice), state) {
			t.Errorf("%s and its mirror differ", id)
		}
		at := 0
		for _, piece := range pieces {
			w := piece.(machine.Tensor).Slice
			if w.Type == device.F32 && !slices.Equal(cpu.Float32s(w), state[at:at+w.Len]) {
				t.Errorf("the mirror of %s offers other weights", id)
			}
			at += w.Len
		}
		release(append(pieces, copied...)...)
		for copies := range 1 + moments {
			for _, part := range parts {
				bucket := p.Model.Buckets()[part.Bucket]
				key := fmt.Sprintf("%s/%d", bucket.Name, copies)
				if values[key] == nil {
					values[key] = make([]float32, bucket.Len)
				}
				copy(values[key][part.Range.Lo:part.Range.Hi], state)
				state = state[part.Range.Len():]
			}
		}
		if len(state) != 0 {
			t.Errorf("%s: %d elements of state are left over", id, len(state))
		}
		release(out...)
	}
	return values, sizes
}

// TestRules: AdamW and SGD on shards are the published formulas in float64, to float32 precision,
// with decay on matrices alone.
func TestRules(t *testing.T) {
	for _, kind := range []string{"adamw", "sgd"} {
		t.Run(kind, func(t *testing.T) {
			p := ledgerPlan(t, 1, 1, kind)
			got, _ := train(t, p)
			o := p.Job.Train.Optimizer
			for bi, b := range p.Model.Buckets() {
				for pi, q := range b.Params {
					w := make([]float32, q.Len())
					model.Initialize(q, p.Job.Train.Seed, w, 0)
					for i := range w {
						x, m, v := float64(w[i]), 0.0, 0.0
						decay := 0.0
						if q.Decay {
							decay = o.WeightDecay
						}
						for step := range int64(2) {
							lr := optim.LearningRate(p.Job.Train, step)
							g := 0.25 * float64(gradient(step, bi, b.Offsets[pi]+i))
							if kind == "sgd" {
								m = o.Momentum*m + g
								x -= lr * (m + decay*x)
								continue
							}
							n := float64(step + 1)
							m = o.Beta1*m + (1-o.Beta1)*g
							v = o.Beta2*v + (1-o.Beta2)*g*g
							x -= lr * (m/(1-math.Pow(o.Beta1, n))/(math.Sqrt(v/(1-math.Pow(o.Beta2, n)))+o.Epsilon) + decay*x)
						}
						want := []float64{x, m, v}
						for c := range 1 + optim.Rules[kind].Moments {
							g := float64(got[fmt.Sprintf("%s/%d", b.Name, c)][b.Offsets[pi]+i])
							if math.Abs(g-want[c]) > 2e-6*(1+math.Abs(want[c])) {
								t.Fatalf("%s[%d], vector %d: %v, want %v", q.Name, i, c, g, want[c])
							}
						}
					}
				}
			}
		})
	}
}

// TestShardsAgree: weights, moments and norms have the same bits whoever owns what.
func TestShardsAgree(t *testing.T) {
	want, norms := train(t, ledgerPlan(t, 1, 1, "adamw"))
	for _, layout := range [][2]int{{1, 2}, {1, 4}, {2, 1}, {2, 3}, {3, 2}} {
		p := ledgerPlan(t, layout[0], layout[1], "adamw")
		got, n := train(t, p)
		if !slices.Equal(n, norms) {
			t.Errorf("pipeline %d, data %d: norms %v, want %v", layout[0], layout[1], n, norms)
		}
		for name := range want {
			for i := range want[name] {
				if math.Float32bits(got[name][i]) != math.Float32bits(want[name][i]) {
					t.Fatalf("pipeline %d, data %d: %s[%d] is %v, want %v", layout[0], layout[1], name, i, got[name][i], want[name][i])
				}
			}
		}
	}
}

// TestRestore: a state that was collected is restored bit for bit, and is what is published.
func TestRestore(t *testing.T) {
	p := ledgerPlan(t, 1, 1, "adamw")
	b := newBench(t, p)
	id := plan.ShardID(0, 0)
	x := b.shards[id]
	state := make([]float32, x.StateLen())
	for i := range state {
		state[i] = float32(i)
	}
	// Restore from a state is an operation of a plan that resumes.
	resumed, err := plan.New(p.Job, p.Model, plan.Options{Resume: true})
	if err != nil {
		t.Fatal(err)
	}
	b.plan = resumed
	given := b.tensor(state)
	published := b.must(id, plan.InitPhase, 3, plan.Restore, 0, given)
	at := 0
	for i, part := range p.Parts(0, 0) {
		w := cpu.Float32s(published[i].(machine.Tensor).Slice)
		if !slices.Equal(w, state[at:at+part.Range.Len()]) {
			t.Errorf("published weights of bucket %d differ", part.Bucket)
		}
		at += part.Range.Len()
	}
	out := b.must(id, plan.SnapshotPhase, 3, plan.Collect, 0)
	if !slices.Equal(cpu.Float32s(out[0].(machine.Tensor).Slice), state) {
		t.Error("the collected state differs")
	}
	short := b.tensor(state[1:])
	if _, err := b.run(id, plan.InitPhase, 3, plan.Restore, 0, short); err == nil || !strings.Contains(err.Error(), "must have") {
		t.Errorf("a state that is too short: %v", err)
	}
	release(append(append(published, out...), given, short)...)
}

// TestOldWeights: whoever holds the weights of the step before still reads them after the update.
func TestOldWeights(t *testing.T) {
	p := ledgerPlan(t, 1, 1, "sgd")
	b := newBench(t, p)
	id := plan.ShardID(0, 0)
	before := b.must(id, plan.InitPhase, 0, plan.Restore, 0)
	part := p.Parts(0, 0)[0]
	old := before[0].(machine.Tensor)
	values := slices.Clone(cpu.Float32s(old.Slice))
	g := b.tensor(make([]float32, part.Range.Len()))
	cpu.Float32s(g.Slice)[0] = 1
	verdict := b.scalar(1)
	after := b.must(id, plan.TrainPhase, 0, plan.Update, part.Bucket, g, verdict)
	if !slices.Equal(cpu.Float32s(old.Slice), values) {
		t.Error("the old weights have changed")
	}
	if slices.Equal(cpu.Float32s(after[0].(machine.Tensor).Slice), values) {
		t.Error("the new weights are the old ones")
	}
	release(append(append(before, after...), g, verdict)...)
}

// TestOutOfMemory: a limit that is too small anywhere is an error that names the actor.
func TestOutOfMemory(t *testing.T) {
	p := ledgerPlan(t, 1, 1, "adamw")
	d := cpu.New(cpu.Options{})
	defer d.Close()
	account := device.NewAccount("shard.p0.d0", 40_000)
	x, err := optim.NewExecutor(p, plan.ShardID(0, 0), d, account)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.OpenStream("test", 1)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	op := &p.Program(plan.ShardID(0, 0), plan.InitPhase).Ops[0]
	s.Do(func(k device.Kernels) error {
		_, err := x.Run(k, plan.Round{}, op, nil)
		return err
	}, func(err error) { done <- err })
	if err := <-done; err == nil || !strings.Contains(err.Error(), "shard.p0.d0 asked for") {
		t.Errorf("error %v", err)
	}
	x.Close()
	if account.Held() != 0 {
		t.Errorf("%d bytes are held after Close", account.Held())
	}
}

func TestNewExecutorRefuses(t *testing.T) {
	p := ledgerPlan(t, 1, 2, "adamw")
	d := cpu.New(cpu.Options{})
	defer d.Close()
	for _, id := range []plan.ActorID{"trainer", "stage.p0.d0", "shard.p1.d0", "shard.p0.d2", "shard"} {
		if _, err := optim.NewExecutor(p, id, d, nil); err == nil {
			t.Errorf("%s is taken for a shard", id)
		}
	}
	double := cpu.New(cpu.Options{Float: device.F64})
	defer double.Close()
	if _, err := optim.NewExecutor(p, plan.ShardID(0, 0), double, nil); err == nil {
		t.Error("weights in float64 are taken")
	}
}

// TestPublishedInBF16: stages that store bfloat16 get the masters rounded, from a shard and from its mirror; masters and moments
// are those of float32.
func TestPublishedInBF16(t *testing.T) {
	p := ledgerPlan(t, 1, 2, "adamw")
	want, _ := train(t, p)
	job := *p.Job
	job.Train.Precision = plan.BF16
	p.Job = &job
	b := newBench(t, p)
	rounded := func(what string, id plan.ActorID, out []machine.Payload) {
		t.Helper()
		rank, d, _ := id.Rank()
		state := b.must(id, plan.SnapshotPhase, 0, plan.Collect, 0)
		masters, at := cpu.Float32s(state[0].(machine.Tensor).Slice), 0
		if len(out) != len(p.Parts(rank, d)) {
			t.Fatalf("%s of %s publishes %d pieces", what, id, len(out))
		}
		for _, o := range out {
			got := o.(machine.Tensor).Slice
			if got.Type != device.BF16 {
				t.Fatalf("%s of %s publishes %s", what, id, got.Type)
			}
			for i, v := range cpu.BFloat16s(got) {
				if v != cpu.Round(masters[at+i]) {
					t.Fatalf("%s of %s: element %d is %#x of %v", what, id, i, v, masters[at+i])
				}
			}
			at += got.Len
		}
		release(append(out, state...)...)
	}
	for _, id := range b.owners() {
		rounded("Restore", id, b.must(id, plan.InitPhase, 0, plan.Restore, 0))
		b.must(mirror(id), plan.InitPhase, 0, plan.Restore, 0)
		b.must(id, plan.TrainPhase, 0, plan.Advance, 0)
		rank, d, _ := id.Rank()
		rounded("Advance of the mirror", id, b.must(mirror(id), plan.TrainPhase, 0, plan.Advance, 0))
		verdict := b.scalar(0.25)
		var grads, published []machine.Payload
		for _, part := range p.Parts(rank, d) {
			g := make([]float32, part.Range.Len())
			for i := range g {
				g[i] = gradient(0, part.Bucket, part.Range.Lo+i)
			}
			grads = append(grads, b.tensor(g))
			published = append(published, b.must(id, plan.TrainPhase, 0, plan.Update, part.Bucket, grads[len(grads)-1], verdict)...)
		}
		b.must(id, plan.TrainPhase, 1, plan.Advance, 0)
		rounded("Update", id, published)
		release(append(grads, verdict)...)
	}
	if got, _ := train(t, p); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Error("the state is not that of float32")
	}
}
