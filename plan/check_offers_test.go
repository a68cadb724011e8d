package plan

import (
	"slices"
	"strings"
	"testing"
)

// TestOffersDamaged breaks what is offered or received in a recovery, and wants Check to name it.
func TestOffersDamaged(t *testing.T) {
	stage, shard, mirror := StageID(1, 0), ShardID(1, 0), MirrorID(1, 0)
	drop := func(p *Program, i int) { p.Ops = slices.Delete(p.Ops, i, i+1) }
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, pl *Plan)
		want   string
	}{
		{"offer dropped", func(t *testing.T, pl *Plan) {
			drop(pl.Program(shard, TrainPhase), find(t, pl, shard, TrainPhase, "offer state"))
		}, "recover, mirror.p1.d0, operation 0 (receive state of shard.p1.d0 from shard.p1.d0): shard.p1.d0 does not offer it in train"},
		{"offer to another peer", func(t *testing.T, pl *Plan) {
			pl.Program(mirror, EvaluatePhase).Ops[find(t, pl, mirror, EvaluatePhase, "offer parameters")].Peer = StageID(0, 0)
		}, "does not receive it when it recovers"},
		{"offered twice", func(t *testing.T, pl *Plan) {
			p := pl.Program(mirror, SnapshotPhase)
			i := find(t, pl, mirror, SnapshotPhase, "offer parameters", "stage.p1.d0")
			p.Ops = slices.Insert(p.Ops, i, p.Ops[i])
		}, "is the same message as that of operation"},
		{"offered after a wait", func(t *testing.T, pl *Plan) {
			p := pl.Program(shard, TrainPhase)
			i := find(t, pl, shard, TrainPhase, "offer state")
			offer := p.Ops[i]
			drop(p, i)
			p.Ops = slices.Insert(p.Ops, find(t, pl, shard, TrainPhase, "square-norm"), offer)
		}, "which waits for a message"},
		{"parameters of after the update", func(t *testing.T, pl *Plan) {
			op := &pl.Program(mirror, TrainPhase).Ops[find(t, pl, mirror, TrainPhase, "offer parameters")]
			op.Reads[0].Use = 0
		}, "it should read old parameters"},
		{"state not advanced", func(t *testing.T, pl *Plan) {
			drop(pl.Program(shard, SnapshotPhase), find(t, pl, shard, SnapshotPhase, "advance"))
		}, "snapshot, shard.p1.d0: advance is due"},
		{"mirror that holds nothing", func(t *testing.T, pl *Plan) {
			drop(pl.Program(mirror, TrainPhase), find(t, pl, mirror, TrainPhase, "hold"))
		}, "mirror.p1.d0"},
		{"stage that recovers half", func(t *testing.T, pl *Plan) {
			p := pl.Program(stage, RecoverPhase)
			drop(p, find(t, pl, stage, RecoverPhase, "load"))
		}, "recover, stage.p1.d0: load of bucket"},
		{"offer in a recovery", func(t *testing.T, pl *Plan) {
			p := pl.Program(mirror, RecoverPhase)
			p.Ops = append(p.Ops, Op{Kind: Offer, Peer: shard, As: state(1, 1), Writes: []Value{state(1, 1)}, Frees: []Value{state(1, 1)}})
		}, "is not what recovers an actor"},
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

// TestMirrorsApart: a mirror is on another node than its shard wherever there are two.
func TestMirrorsApart(t *testing.T) {
	for nodes := 2; nodes <= 7; nodes++ {
		pl, err := New(toyJob(22, 4, 3, 2, "1f1b"), toy(7), Options{Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		at := map[ActorID]int{}
		for _, a := range pl.Actors {
			at[a.ID] = a.Node
		}
		for _, a := range pl.Actors {
			if p, d, _ := a.ID.Rank(); a.ID.Role() == "mirror" && at[ShardID(p, d)] == a.Node {
				t.Errorf("%d nodes: %s and its shard are on node %d", nodes, a.ID, a.Node)
			}
		}
	}
}
