package actors

import (
	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/messages"
	"github.com/troupe-train/troupe/plan"
)

func protoRound(r plan.Round) *messages.Round {
	return &messages.Round{Step: r.Step, Phase: uint32(r.Phase), Shares: string(r.Shares)}
}

func planRound(r *messages.Round) plan.Round {
	return plan.Round{Step: r.GetStep(), Phase: plan.Phase(r.GetPhase()), Shares: plan.Shares(r.GetShares())}
}

func protoValue(v plan.Value) *messages.Value {
	return &messages.Value{
		Kind: uint32(v.Kind), Index: int64(v.Index), Use: int64(v.Use),
		Lo: int64(v.Lo), Hi: int64(v.Hi), Piece: int64(v.Piece),
	}
}

func planValue(v *messages.Value) plan.Value {
	return plan.Value{
		Kind: plan.Kind(v.GetKind()), Index: int(v.GetIndex()), Use: int(v.GetUse()),
		Lo: int(v.GetLo()), Hi: int(v.GetHi()), Piece: int(v.GetPiece()),
	}
}

func protoName(n machine.Name) *messages.Name {
	return &messages.Name{
		Job: n.Job, Round: protoRound(n.Round), Incarnation: uint32(n.Incarnation),
		From: string(n.From), To: string(n.To), Value: protoValue(n.Value),
	}
}

func planName(n *messages.Name) machine.Name {
	return machine.Name{
		Job: n.GetJob(), Round: planRound(n.GetRound()), Incarnation: int(n.GetIncarnation()),
		From: plan.ActorID(n.GetFrom()), To: plan.ActorID(n.GetTo()), Value: planValue(n.GetValue()),
	}
}

func protoWait(w machine.Wait) *messages.Wait {
	return &messages.Wait{Round: protoRound(w.Round), Op: w.Op, Value: protoValue(w.Value), From: string(w.From), Running: w.Running}
}

func planWait(w *messages.Wait) machine.Wait {
	return machine.Wait{
		Round: planRound(w.GetRound()), Op: w.GetOp(), Value: planValue(w.GetValue()),
		From: plan.ActorID(w.GetFrom()), Running: w.GetRunning(),
	}
}

func protoFailure(f machine.Failed) *messages.Failure {
	return &messages.Failure{
		Actor: string(f.Actor), Incarnation: uint32(f.Incarnation), Node: f.Node,
		Round: protoRound(f.Round), Op: f.Op, Cause: f.Cause,
	}
}

func planFailure(f *messages.Failure) machine.Failed {
	return machine.Failed{
		Actor: plan.ActorID(f.GetActor()), Node: f.GetNode(), Round: planRound(f.GetRound()), Op: f.GetOp(), Cause: f.GetCause(),
		Incarnation: int(f.GetIncarnation()),
	}
}
