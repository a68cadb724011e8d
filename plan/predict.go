package plan

import "github.com/troupe-train/troupe/model"

// predict runs the programs on paper: each operation takes as long as its floating-point
// operations, messages take no time, and every buffer is charged as the executors charge it. Nobody
// fails, but in predictRecovery. The memory of an actor is that at its highest point in any phase, so
// the parts are those of one moment and sum to the peak.
//
// Floating-point elements are float32, or what train.precision says. Left out are what is not charged to an account: the programs and
// the plan, reports, what the kernels of a device use inside, and the frames of the transport.
// Messages from other nodes are charged from when they are sent, at the speed of equal devices:
// how early they come in truth depends on the run.
func predict(pl *Plan) Prediction {
	var pr Prediction
	accounts := make([]account, len(pl.Actors))
	node := make(map[ActorID]int, len(pl.Actors))
	for _, a := range pl.Actors {
		node[a.ID] = a.Node
	}
	for ph := range Phases {
		if ph == RecoverPhase {
			continue
		}
		times := simulate(pl, ph)
		for i := range pl.Actors {
			measure(pl, ph, i, node, times, &accounts[i])
		}
		if ph == TrainPhase {
			pr.Bubble = bubble(pl, times)
		}
	}
	for i, a := range pl.Actors {
		most := accounts[i].most
		ap := ActorPrediction{
			ID: a.ID, Parameters: most[parameterBytes], Gradients: most[gradientBytes], Optimizer: most[optimizerBytes],
			Activations: most[activationBytes], Messages: most[messageBytes], Workspace: most[workBytes],
			LiveMicroBatches: liveMicroBatches(pl.Program(a.ID, TrainPhase)),
		}
		ap.Recovery = max(ap.Peak(), predictRecovery(pl, i))
		for _, op := range pl.Program(a.ID, TrainPhase).Ops {
			ap.FLOPs += flops(pl, TrainPhase, &op)
		}
		pr.FLOPs += ap.FLOPs
		pr.Actors = append(pr.Actors, ap)
	}
	pr.Sent = sent(pl)
	return pr
}

// sent is the bytes that a step sends, by what they are.
func sent(pl *Plan) map[Kind]int64 {
	m := memory{pl: pl, phase: TrainPhase}
	bytes := map[Kind]int64{}
	for _, a := range pl.Actors {
		for _, op := range pl.Program(a.ID, TrainPhase).Ops {
			if op.Kind == Send {
				bytes[op.As.Kind] += m.bytes(op.As)
			}
		}
	}
	return bytes
}

// liveMicroBatches is the most micro-batches that a stage's program holds between F and W.
func liveMicroBatches(p *Program) int {
	live, most := 0, 0
	for _, op := range p.Ops {
		switch op.Kind {
		case Forward:
			live++
			most = max(most, live)
		case BackwardWeight:
			live--
		}
	}
	return most
}

// flops is the work of an operation as the model counts it. Only F, B and W count.
func flops(pl *Plan, ph Phase, op *Op) float64 {
	var part func(model.Cost) float64
	switch op.Kind {
	case Forward:
		part = func(c model.Cost) float64 { return c.Forward }
	case BackwardInput:
		part = func(c model.Cost) float64 { return c.BackwardInput }
	case BackwardWeight:
		part = func(c model.Cost) float64 { return c.BackwardWeight }
	default:
		return 0
	}
	sum := 0.0
	for layer := op.Lo; layer < op.Hi; layer++ {
		sum += part(pl.Model.LayerCost(layer, batchesOf(pl, ph)[op.Micro].Rows, pl.Model.Context))
	}
	return sum
}
