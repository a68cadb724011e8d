package plan

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// find is the first operation of a program that is of a kind and whose text contains all of parts.
func find(t *testing.T, pl *Plan, a ActorID, ph Phase, parts ...string) int {
	t.Helper()
	for i, op := range pl.Program(a, ph).Ops {
		if !slices.ContainsFunc(parts, func(s string) bool { return !strings.Contains(op.String(), s) }) {
			return i
		}
	}
	t.Fatalf("%s in %s has no operation with %q", a, ph, parts)
	return -1
}

// TestDamage breaks good plans in one place and wants Check to name it.
func TestDamage(t *testing.T) {
	stage0, stage1, shard := StageID(0, 0), StageID(1, 0), ShardID(0, 1)
	drop := func(p *Program, i int) { p.Ops = slices.Delete(p.Ops, i, i+1) }
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, pl *Plan)
		want   string
	}{
		{"forward dropped", func(t *testing.T, pl *Plan) {
			drop(pl.Program(stage0, TrainPhase), find(t, pl, stage0, TrainPhase, "forward", "micro-batch 1"))
		}, "train, stage.p0.d0: forward of layer 0 micro-batch 1 is due, but no operation does it"},
		{"weight gradient twice", func(t *testing.T, pl *Plan) {
			p := pl.Program(stage1, TrainPhase)
			i := find(t, pl, stage1, TrainPhase, "backward-weight", "micro-batch 0")
			p.Ops = slices.Insert(p.Ops, i, p.Ops[i])
		}, "backward-weight of layer 4 micro-batch 0 is done by operation"},
		{"weight gradient before input gradient", func(t *testing.T, pl *Plan) {
			p := pl.Program(stage1, TrainPhase)
			i, j := find(t, pl, stage1, TrainPhase, "backward-input", "micro-batch 0"), find(t, pl, stage1, TrainPhase, "backward-weight", "micro-batch 0")
			p.Ops[i], p.Ops[j] = p.Ops[j], p.Ops[i]
		}, "reads stashed chunk 0 micro-batch 0, which nothing before it writes"},
		{"micro-batch at the wrong data rank", func(t *testing.T, pl *Plan) {
			p := pl.Program(stage0, TrainPhase)
			p.Ops[find(t, pl, stage0, TrainPhase, "forward", "micro-batch 0")].Micro = 4
		}, "stage.p0.d0, operation 1 (forward layers 0..3 micro-batch 4): reads tokens micro-batch 0; it should read tokens micro-batch 4"},
		{"receive dropped", func(t *testing.T, pl *Plan) {
			drop(pl.Program(stage1, TrainPhase), find(t, pl, stage1, TrainPhase, "receive activation into layer 4 micro-batch 0"))
		}, "reads activation into layer 4 micro-batch 0, which nothing before it writes"},
		{"send dropped", func(t *testing.T, pl *Plan) {
			p := pl.Program(StageID(0, 1), InitPhase)
			drop(p, len(p.Ops)-1)
		}, "init, stage.p0.d1, operation"},
		{"send to another peer", func(t *testing.T, pl *Plan) {
			pl.Program(stage0, TrainPhase).Ops[find(t, pl, stage0, TrainPhase, "send activation", "micro-batch 1")].Peer = StageID(1, 1)
		}, "send activation into layer 4 micro-batch 1 to stage.p1.d1): stage.p1.d1 never receives it"},
		{"send to nobody", func(t *testing.T, pl *Plan) {
			pl.Program(stage0, TrainPhase).Ops[find(t, pl, stage0, TrainPhase, "send activation")].Peer = "stage.p7.d0"
		}, `its peer "stage.p7.d0" is not another actor of the plan`},
		{"send under another name", func(t *testing.T, pl *Plan) {
			pl.Program(stage0, TrainPhase).Ops[find(t, pl, stage0, TrainPhase, "send activation", "micro-batch 1")].As.Lo = 0
		}, "reads activation into layer 4 micro-batch 1, which is not the value that it sends"},
		{"piece to the wrong shard", func(t *testing.T, pl *Plan) {
			p := pl.Program(stage0, TrainPhase)
			i := find(t, pl, stage0, TrainPhase, "send gradient", "piece 0")
			p.Ops[i].As.Piece, p.Ops[i+1].As.Piece = 1, 0
		}, "never receives it"},
		{"the same send twice", func(t *testing.T, pl *Plan) {
			p := pl.Program(stage0, TrainPhase)
			i := find(t, pl, stage0, TrainPhase, "send gradient", "piece 0")
			p.Ops = slices.Insert(p.Ops, i, p.Ops[i])
		}, "is the same message as that of operation"},
		{"sends of one value swapped", func(t *testing.T, pl *Plan) {
			p := pl.Program(stage0, TrainPhase)
			i := find(t, pl, stage0, TrainPhase, "send gradient", "piece 0")
			p.Ops[i], p.Ops[i+1] = p.Ops[i+1], p.Ops[i]
		}, "which operation"},
		{"addition twice", func(t *testing.T, pl *Plan) {
			p := pl.Program(stage0, TrainPhase)
			i := find(t, pl, stage0, TrainPhase, "add gradient")
			p.Ops = slices.Insert(p.Ops, i, p.Ops[i])
		}, "which operation"},
		{"addition of swapped operands", func(t *testing.T, pl *Plan) {
			slices.Reverse(pl.Program(stage0, TrainPhase).Ops[find(t, pl, stage0, TrainPhase, "add gradient")].Reads)
		}, "the children of the node are"},
		{"another association", func(t *testing.T, pl *Plan) {
			op := &pl.Program(stage0, TrainPhase).Ops[find(t, pl, stage0, TrainPhase, "add gradient")]
			op.Writes[0].Lo, op.Writes[0].Hi = 1, 3
		}, "which is no inner node of the tree over 6 micro-batches"},
		{"gradient left out", func(t *testing.T, pl *Plan) {
			p := pl.Program(shard, TrainPhase)
			op := &p.Ops[find(t, pl, shard, TrainPhase, "reduce bucket 0")]
			op.Reads = op.Reads[:len(op.Reads)-1]
		}, "no gradient of use 1 for micro-batch 3 is reduced"},
		{"gradient reduced twice", func(t *testing.T, pl *Plan) {
			op := &pl.Program(shard, TrainPhase).Ops[find(t, pl, shard, TrainPhase, "reduce bucket 1")]
			op.Reads = append(op.Reads, op.Reads[0])
		}, "after all micro-batches are reduced"},
		{"gradients in another order", func(t *testing.T, pl *Plan) {
			slices.Reverse(pl.Program(shard, TrainPhase).Ops[find(t, pl, shard, TrainPhase, "reduce bucket 0")].Reads)
		}, "of use 0 that starts at micro-batch 0, piece 1, is due"},
		{"update dropped", func(t *testing.T, pl *Plan) {
			drop(pl.Program(shard, TrainPhase), find(t, pl, shard, TrainPhase, "update bucket 1"))
		}, "update of bucket 1 piece 1 is due"},
		{"load of the wrong bucket", func(t *testing.T, pl *Plan) {
			pl.Program(stage1, InitPhase).Ops[find(t, pl, stage1, InitPhase, "load bucket")].Bucket = 1
		}, "should read"},
		{"norm of half a shard", func(t *testing.T, pl *Plan) {
			op := &pl.Program(shard, TrainPhase).Ops[find(t, pl, shard, TrainPhase, "square-norm")]
			op.Reads = op.Reads[1:]
		}, "(square-norm): reads"},
		{"decision without a loss", func(t *testing.T, pl *Plan) {
			op := &pl.Program(Trainer, TrainPhase).Ops[find(t, pl, Trainer, TrainPhase, "decide")]
			op.Reads = op.Reads[1:]
		}, "trainer, operation"},
		{"freed too early", func(t *testing.T, pl *Plan) {
			p := pl.Program(stage0, TrainPhase)
			i := find(t, pl, stage0, TrainPhase, "backward-input", "micro-batch 0")
			p.Ops[i].Frees = append(p.Ops[i].Frees, saved(0, 0))
		}, "reads saved chunk 0 micro-batch 0, which operation"},
		{"never freed", func(t *testing.T, pl *Plan) {
			pl.Program(stage0, TrainPhase).Ops[find(t, pl, stage0, TrainPhase, "backward-weight")].Frees = nil
		}, "which is never freed"},
		{"parameters freed", func(t *testing.T, pl *Plan) {
			op := &pl.Program(stage0, TrainPhase).Ops[find(t, pl, stage0, TrainPhase, "load bucket")]
			op.Frees = append(op.Frees, op.Writes[0])
		}, "which outlives the program"},
		{"finish too early", func(t *testing.T, pl *Plan) {
			p := pl.Program(stage0, TrainPhase)
			i := find(t, pl, stage0, TrainPhase, "finish")
			op := p.Ops[i]
			drop(p, i)
			p.Ops = slices.Insert(p.Ops, 0, op)
		}, "comes after the finish"},
		{"backward in evaluation", func(t *testing.T, pl *Plan) {
			pl.Programs[EvaluatePhase][stage0].Ops = slices.Clone(pl.Program(stage0, TrainPhase).Ops)
		}, "evaluate, stage.p0.d0, operation"},
		{"program missing", func(t *testing.T, pl *Plan) { delete(pl.Programs[SnapshotPhase], shard) }, "snapshot: shard.p0.d1 has no program"},
		{"program of nobody", func(t *testing.T, pl *Plan) { pl.Programs[TrainPhase]["x"] = &Program{} }, "train: there is a program for x, which is no actor of the plan"},
		{"layer lost", func(t *testing.T, pl *Plan) { pl.Stages[1].Lo++ }, "but the ranks before end at layer 4"},
		{"rows lost", func(t *testing.T, pl *Plan) { pl.Train[5].Rows-- }, "hold 21 rows, but the batch has 22"},
		{"piece inside a block", func(t *testing.T, pl *Plan) { pl.Buckets[0].Pieces[0].Hi--; pl.Buckets[0].Pieces[1].Lo-- }, "inside a block"},
		{"pieces overlap", func(t *testing.T, pl *Plan) { pl.Buckets[0].Pieces[1].Lo-- }, "the pieces of bucket 0 have"},
		{"actor lost", func(t *testing.T, pl *Plan) { pl.Actors = pl.Actors[:len(pl.Actors)-1] }, "there are 12 actors; the layout has 13"},
		{"receive before the send that it waits for", func(t *testing.T, pl *Plan) {
			// Both neighbours wait for the other first: stage 1 for micro-batch 1, stage 0 for the gradient of micro-batch 0.
			p := pl.Program(stage1, TrainPhase)
			i, j := find(t, pl, stage1, TrainPhase, "receive activation into layer 4 micro-batch 0"), find(t, pl, stage1, TrainPhase, "receive activation into layer 4 micro-batch 2")
			third := slices.Clone(p.Ops[j : j+4])
			p.Ops = slices.Delete(p.Ops, j, j+4)
			p.Ops = slices.Insert(p.Ops, i, third...)
		}, "the programs stand still: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			pl, err := New(toyJob(22, 4, 2, 2, "1f1b"), toy(7), Options{})
			if err != nil {
				t.Fatal(err)
			}
			c.damage(t, pl)
			err = Check(pl)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("Check: %v, want %q in one line", err, c.want)
			}
		})
	}
}

// TestAnyDropIsSeen: there is no operation that a plan can do without, and none that can be there twice.
func TestAnyDropIsSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pipeline, data := rapid.IntRange(1, 3).Draw(t, "pipeline"), rapid.IntRange(1, 3).Draw(t, "data")
		pl, err := New(toyJob(22, 4, pipeline, data, "1f1b"), toy(5), Options{Resume: rapid.Bool().Draw(t, "resume")})
		if err != nil {
			t.Fatal(err)
		}
		a := rapid.SampledFrom(pl.Actors).Draw(t, "actor").ID
		p := pl.Program(a, Phase(rapid.IntRange(0, int(Phases)-1).Draw(t, "phase")))
		if len(p.Ops) == 0 {
			t.Skip("nothing is done to recover this actor")
		}
		i := rapid.IntRange(0, len(p.Ops)-1).Draw(t, "operation")
		if rapid.Bool().Draw(t, "twice") {
			p.Ops = slices.Insert(p.Ops, i, p.Ops[i])
		} else {
			p.Ops = slices.Delete(p.Ops, i, i+1)
		}
		if Check(pl) == nil {
			t.Fatalf("%s in %s without or with twice operation %d passes the check", a, p.Phase, i)
		}
	})
}
