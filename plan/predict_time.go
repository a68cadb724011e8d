package plan

// times say when each operation of each actor starts and ends, and when each message is sent, in
// floating-point operations since the start of the round.
type times struct {
	start, end [][]float64
	sent       map[wire]float64
}

// simulate runs the programs of a phase on devices of equal speed that are never busy with anything else.
// Programs are deterministic, so the order in which actors are visited does not matter.
func simulate(pl *Plan, ph Phase) times {
	n := len(pl.Actors)
	t := times{make([][]float64, n), make([][]float64, n), map[wire]float64{}}
	index := make(map[ActorID]int, n)
	from := make([]map[Value]ActorID, n) // values to come by message
	clock := make([]float64, n)
	ready := make([]int, n)
	for i, a := range pl.Actors {
		index[a.ID], from[i], ready[i] = i, map[Value]ActorID{}, i
	}
	waiting := map[wire]int{}
	for len(ready) > 0 {
		i := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		id := pl.Actors[i].ID
		ops := pl.Program(id, ph).Ops
	run:
		for len(t.end[i]) < len(ops) {
			op := &ops[len(t.end[i])]
			now := clock[i]
			for _, v := range op.Reads {
				if peer, ok := from[i][v]; ok {
					w := wire{peer, id, v}
					at, ok := t.sent[w]
					if !ok {
						waiting[w] = i
						break run
					}
					now = max(now, at)
				}
			}
			t.start[i] = append(t.start[i], now)
			switch op.Kind {
			case Receive:
				from[i][op.Writes[0]] = op.Peer
			case Send:
				w := wire{id, op.Peer, op.As}
				t.sent[w] = now
				if j, ok := waiting[w]; ok {
					delete(waiting, w)
					ready = append(ready, j)
				}
			case Forward, BackwardInput, BackwardWeight:
				now += flops(pl, ph, op)
			}
			clock[i] = now
			t.end[i] = append(t.end[i], now)
		}
	}
	return t
}

// bubble is the idle share: (time - ideal) / ideal, where ideal is the work of the busiest stage and
// time goes to the end of the last W.
func bubble(pl *Plan, t times) float64 {
	last, ideal := 0.0, 0.0
	for i, a := range pl.Actors {
		work := 0.0
		for k, op := range pl.Program(a.ID, TrainPhase).Ops {
			work += t.end[i][k] - t.start[i][k]
			if op.Kind == BackwardWeight {
				last = max(last, t.end[i][k])
			}
		}
		ideal = max(ideal, work)
	}
	if ideal == 0 {
		return 0
	}
	return (last - ideal) / ideal
}
