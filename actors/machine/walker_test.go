package machine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
	"pgregory.net/rapid"
)

// run is a walker on the middle stage of a pipeline, with the world around it.
type run struct {
	w        *machine.Walker
	live     map[string]int
	onStream []machine.Launch
	sent     map[string]string
	launched []string
}

func newRun(micros, window int) *run {
	first, second := initial(), middleStage(micros)
	p := &plan.Plan{Job: &plan.Job{Name: "job"}}
	for _, q := range []*plan.Program{&first, &second} {
		p.Programs[q.Phase] = map[plan.ActorID]*plan.Program{middle: q}
	}
	return &run{
		w:    machine.NewWalker(p, middle, machine.Window(window)),
		live: map[string]int{},
		sent: map[string]string{},
	}
}

func (r *run) perform(effects []machine.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case machine.Send:
			n := e.Message.Name
			r.sent[fmt.Sprintf("%s %s to %s", n.Round, n.Value, n.To)] += e.Message.Payload.(counted).name
		case machine.Launch:
			s := fmt.Sprintf("%s %d", e.Round, e.Index)
			for i, in := range e.In {
				if machine.Resident(e.Op.Reads[i]) != (in == nil) {
					panic(fmt.Sprintf("%s reads %s, payload %v", s, e.Op.Reads[i], in))
				}
				if in != nil {
					c := in.(counted)
					s += " " + c.name
					if r.live[c.name] <= 0 {
						panic(c.name + " is read after its end")
					}
				}
			}
			r.launched = append(r.launched, s)
			r.onStream = append(r.onStream, e)
		case machine.Drop:
			e.Payload.Release()
		case machine.Refused:
			panic(fmt.Sprintf("refused %s: %s", e.Name, e.Reason))
		case machine.Fail:
			panic(e.Cause)
		}
	}
}

func (r *run) complete() {
	l := r.onStream[0]
	r.onStream = r.onStream[1:]
	e := machine.Completed{Round: l.Round, Op: l.Index}
	for _, v := range l.Op.Writes {
		if machine.Resident(v) {
			e.Out = append(e.Out, nil)
		} else {
			e.Out = append(e.Out, newCounted(fmt.Sprintf("%s %s", l.Round, v), r.live))
		}
	}
	r.perform(r.w.Handle(e))
}

func (r *run) message(v plan.Value, from plan.ActorID, round plan.Round) machine.Arrived {
	m := machine.Message{Name: machine.Name{Job: "job", Round: round, From: from, To: middle, Value: v}}
	if v.Kind != plan.Start {
		m.Payload = newCounted(fmt.Sprintf("%s %s", round, v), r.live)
	}
	return machine.Arrived{Message: m}
}

// TestAnyOrder: whatever the order and the number of copies in which messages arrive, and however
// completions fall between them, the walker launches the same operations on the same values in the same
// order and sends the same messages; and in the end nothing is held.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.IntRange(1, 5).Draw(t, "micro-batches")
		rounds := []plan.Round{{Step: 0, Phase: plan.InitPhase}, {Step: 0, Phase: plan.TrainPhase}, {Step: 1, Phase: plan.TrainPhase}}
		type owed struct {
			v    plan.Value
			from plan.ActorID
		}
		owing := map[plan.Phase][]owed{plan.InitPhase: {{parameters(0), owner}}, plan.TrainPhase: {{parameters(0), owner}}}
		for m := range micros {
			owing[plan.TrainPhase] = append(owing[plan.TrainPhase], owed{activation(1, m), before}, owed{upstream(2, m), after})
		}
		plain := newRun(micros, 1)
		for _, round := range rounds {
			plain.perform(plain.w.Handle(plain.message(plan.Value{Kind: plan.Start, Piece: -1}, plan.Trainer, round)))
			for _, o := range owing[round.Phase] {
				plain.perform(plain.w.Handle(plain.message(o.v, o.from, round)))
			}
			for len(plain.onStream) > 0 {
				plain.complete()
			}
		}

		r := newRun(micros, rapid.IntRange(1, 6).Draw(t, "window"))
		// Messages of a round may come while the round before it runs.
		var pool []func() machine.Arrived
		add := func(i int) {
			for _, o := range owing[rounds[i].Phase] {
				for range rapid.IntRange(1, 3).Draw(t, "copies") {
					pool = append(pool, func() machine.Arrived { return r.message(o.v, o.from, rounds[i]) })
				}
			}
		}
		add(0)
		for i, round := range rounds {
			started := false
			for !started || !r.w.Finished() {
				switch {
				case len(r.onStream) > 0 && rapid.IntRange(0, 2).Draw(t, "complete") == 0:
					r.complete()
				case !started && rapid.IntRange(0, 2).Draw(t, "start") == 0:
					started = true
					if i+1 < len(rounds) {
						add(i + 1)
					}
					for range rapid.IntRange(1, 2).Draw(t, "starts") {
						r.perform(r.w.Handle(r.message(plan.Value{Kind: plan.Start, Piece: -1}, plan.Trainer, round)))
					}
				case len(pool) > 0:
					j := rapid.IntRange(0, len(pool)-1).Draw(t, "which")
					e := pool[j]
					pool = slices.Delete(pool, j, j+1)
					r.perform(r.w.Handle(e()))
				case started && len(r.onStream) > 0:
					r.complete()
				case started:
					t.Fatalf("stuck: %s", r.w.Waiting())
				}
			}
		}
		for _, e := range pool {
			r.perform(r.w.Handle(e()))
		}
		if !slices.Equal(r.launched, plain.launched) {
			t.Fatalf("launched\n%q\nand not\n%q", r.launched, plain.launched)
		}
		if fmt.Sprint(r.sent) != fmt.Sprint(plain.sent) {
			t.Fatalf("sent\n%v\nand not\n%v", r.sent, plain.sent)
		}
		r.perform(r.w.Close())
		for name, n := range r.live {
			if n != 0 {
				t.Errorf("%s has %d references after the end", name, n)
			}
		}
	})
}

// memory is a buffer that only counts its references.
type memory struct{ references int }

func (m *memory) Size() int64  { return 400 }
func (m *memory) Retain()      { m.references++ }
func (m *memory) Release()     { m.references-- }
func (m *memory) Host() []byte { return nil }

// TestPieces: a shard is sent its piece of a gradient as a view of the same memory.
func TestPieces(t *testing.T) {
	whole := gradient(0, 1)
	piece := whole
	piece.Piece = 1
	p := &plan.Plan{
		Job:     &plan.Job{Name: "job"},
		Buckets: []plan.BucketPlan{{Pieces: []plan.Range{{Lo: 0, Hi: 60}, {Lo: 60, Hi: 100}}}},
	}
	p.Programs[plan.TrainPhase] = map[plan.ActorID]*plan.Program{middle: {Actor: middle, Phase: plan.TrainPhase, Ops: []plan.Op{
		{Kind: plan.BackwardWeight, Writes: values{whole}},
		{Kind: plan.Send, Peer: owner, As: piece, Reads: values{whole}, Frees: values{whole}},
	}}}
	w := machine.NewWalker(p, middle)
	w.Open(plan.Round{Phase: plan.TrainPhase})
	m := &memory{references: 1}
	effects := w.Handle(machine.Completed{
		Round: plan.Round{Phase: plan.TrainPhase},
		Out:   []machine.Payload{machine.Tensor{Slice: device.Slice{Buffer: m, Offset: 5, Len: 100, Type: device.F32}}},
	})
	sent := effects[0].(machine.Send).Message
	if got := sent.Payload.(machine.Tensor); got.Offset != 65 || got.Len != 40 || got.Buffer != m {
		t.Errorf("sent the view of %d elements from %d", got.Len, got.Offset)
	}
	if sent.Name.Value != piece {
		t.Errorf("sent under the name %s", sent.Name.Value)
	}
	effects[1].(machine.Drop).Payload.Release()
	if m.references != 1 {
		t.Errorf("%d references while it is in the outbox", m.references)
	}
	for _, e := range w.Close() {
		e.(machine.Drop).Payload.Release()
	}
	if m.references != 0 {
		t.Errorf("%d references at the end", m.references)
	}
}

// TestBrokenPrograms: a program that the checker would refuse is a broken invariant.
func TestBrokenPrograms(t *testing.T) {
	for name, ops := range map[string][]plan.Op{
		"reads what nothing writes": {{Kind: plan.Forward, Reads: values{activation(1, 0)}}},
		"reads before it is written": {
			send(report, plan.Trainer),
			compute(plan.Finish, 0, nil, values{report}, nil),
		},
		"writes twice":              {receive(activation(1, 0), before), receive(activation(1, 0), after)},
		"frees what nothing writes": {compute(plan.Finish, 0, nil, values{report}, values{saved(0)})},
		"sends two values":          {{Kind: plan.Send, Peer: after}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plan.Plan{Job: &plan.Job{Name: "job"}}
			p.Programs[plan.TrainPhase] = map[plan.ActorID]*plan.Program{middle: {Actor: middle, Phase: plan.TrainPhase, Ops: ops}}
			defer func() {
				if recover() == nil {
					t.Error("it was taken")
				}
			}()
			machine.NewWalker(p, middle).Open(plan.Round{Phase: plan.TrainPhase})
		})
	}
}
