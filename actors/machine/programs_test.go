package machine_test

import "github.com/troupe-train/troupe/plan"

// Values of the programs below.
func activation(layer, micro int) plan.Value {
	return plan.Value{Kind: plan.Activation, Index: layer, Lo: micro, Piece: -1}
}
func upstream(layer, micro int) plan.Value {
	return plan.Value{Kind: plan.ActivationGrad, Index: layer, Lo: micro, Piece: -1}
}
func saved(micro int) plan.Value   { return plan.Value{Kind: plan.Saved, Lo: micro, Piece: -1} }
func stashed(micro int) plan.Value { return plan.Value{Kind: plan.Stashed, Lo: micro, Piece: -1} }
func gradient(lo, hi int) plan.Value {
	return plan.Value{Kind: plan.Gradient, Lo: lo, Hi: hi, Piece: -1}
}
func parameters(piece int) plan.Value {
	return plan.Value{Kind: plan.Parameters, Piece: piece}
}

func tokens(micro int) plan.Value {
	return plan.Value{Kind: plan.Tokens, Lo: micro, Piece: -1}
}

var (
	report  = plan.Value{Kind: plan.Report, Piece: -1}
	verdict = plan.Value{Kind: plan.Verdict, Piece: -1}
	reduced = plan.Value{Kind: plan.Reduced}
	state   = plan.Value{Kind: plan.State, Index: 1}
)

type values = []plan.Value

func receive(v plan.Value, from plan.ActorID) plan.Op {
	return plan.Op{Kind: plan.Receive, Peer: from, Writes: values{v}}
}

func send(v plan.Value, to plan.ActorID, frees ...plan.Value) plan.Op {
	return plan.Op{Kind: plan.Send, Peer: to, As: v, Reads: values{v}, Frees: frees}
}

func compute(kind plan.OpKind, micro int, reads, writes, frees values) plan.Op {
	return plan.Op{Kind: kind, Lo: 1, Hi: 2, Micro: micro, Reads: reads, Writes: writes, Frees: frees}
}

const (
	before = plan.ActorID("stage.p0.d0")
	middle = plan.ActorID("stage.p1.d0")
	after  = plan.ActorID("stage.p2.d0")
	owner  = plan.ActorID("shard.p1.d0")
	mirror = plan.ActorID("mirror.p1.d0")
)

// middleStage is a stage between two others: 1F1B over micros micro-batches, one warm-up forward.
func middleStage(micros int) plan.Program {
	p := plan.Program{Actor: middle, Phase: plan.TrainPhase}
	for m := range micros {
		p.Ops = append(p.Ops, receive(activation(1, m), before), receive(upstream(2, m), after))
	}
	forward := func(m int) {
		p.Ops = append(p.Ops,
			compute(plan.Forward, m, values{activation(1, m)}, values{saved(m), activation(2, m)}, values{activation(1, m)}),
			send(activation(2, m), after, activation(2, m)))
	}
	backward := func(m int) {
		p.Ops = append(p.Ops,
			compute(plan.BackwardInput, m, values{saved(m), upstream(2, m)}, values{stashed(m), upstream(1, m)}, values{upstream(2, m)}),
			send(upstream(1, m), before, upstream(1, m)),
			compute(plan.BackwardWeight, m, values{saved(m), stashed(m)}, values{gradient(m, m+1)}, values{saved(m), stashed(m)}))
		if m > 0 {
			children := values{gradient(0, m), gradient(m, m+1)}
			p.Ops = append(p.Ops, compute(plan.Add, 0, children, values{gradient(0, m+1)}, children))
		}
	}
	forward(0)
	for m := 1; m < micros; m++ {
		forward(m)
		backward(m - 1)
	}
	backward(micros - 1)
	p.Ops = append(p.Ops,
		send(gradient(0, micros), owner, gradient(0, micros)),
		receive(parameters(0), owner),
		compute(plan.Load, 0, values{parameters(0)}, nil, values{parameters(0)}),
		compute(plan.Finish, 0, nil, values{report}, nil),
		send(report, plan.Trainer, report))
	return p
}

// initial receives parameters.
func initial() plan.Program {
	return plan.Program{Actor: middle, Phase: plan.InitPhase, Ops: []plan.Op{
		receive(parameters(0), owner),
		compute(plan.Load, 0, values{parameters(0)}, nil, values{parameters(0)}),
		compute(plan.Finish, 0, nil, values{report}, nil),
		send(report, plan.Trainer, report),
	}}
}

// recovering receives parameters from the mirror of the shard that owns them.
func recovering() plan.Program {
	return plan.Program{Actor: middle, Phase: plan.RecoverPhase, Ops: []plan.Op{
		receive(parameters(0), mirror),
		compute(plan.Load, 0, values{parameters(0)}, nil, values{parameters(0)}),
	}}
}

// held is a step of a mirror, which offers parameters to a stage and its state to its shard.
func held() []plan.Program {
	offer := func(v plan.Value, to plan.ActorID, frees ...plan.Value) plan.Op {
		return plan.Op{Kind: plan.Offer, Peer: to, As: v, Reads: values{v}, Frees: frees}
	}
	return []plan.Program{
		{Actor: mirror, Phase: plan.RecoverPhase, Ops: []plan.Op{
			receive(state, owner),
			compute(plan.Restore, 0, values{state}, nil, values{state}),
		}},
		{Actor: mirror, Phase: plan.TrainPhase, Ops: []plan.Op{
			compute(plan.Advance, 0, nil, values{parameters(0)}, nil),
			offer(parameters(0), before),
			offer(parameters(0), middle, parameters(0)),
			{Kind: plan.Offer, Peer: owner, As: state, Writes: values{state}, Frees: values{state}},
			receive(reduced, owner),
			receive(verdict, plan.Trainer),
			compute(plan.Hold, 0, values{reduced, verdict}, nil, values{reduced, verdict}),
			compute(plan.Finish, 0, nil, values{report}, nil),
			send(report, plan.Trainer, report),
		}},
	}
}

// trainer feeds a micro-batch and hears of two actors.
func trainer() plan.Program {
	second := report
	second.Index = 1
	ended := report
	ended.Index = 2
	return plan.Program{Actor: plan.Trainer, Phase: plan.TrainPhase, Ops: []plan.Op{
		compute(plan.Feed, 0, nil, values{tokens(0)}, nil),
		send(tokens(0), before, tokens(0)),
		receive(report, before),
		receive(second, middle),
		compute(plan.Finish, 0, values{report, second}, values{ended}, values{report, second}),
	}}
}

// sets are the programs that scripts may use.
var sets = map[string][]plan.Program{
	"middle":     {initial(), middleStage(2)},
	"middle-one": {initial(), middleStage(1)},
	"recover":    {initial(), recovering(), middleStage(1)},
	"mirror":     held(),
	"trainer":    {trainer()},
}
