package supervisor

import "github.com/troupe-train/troupe/plan"

// Seats are the actors of a plan, for Recovery: what an actor receives in its Recover program is its state, and those
// that offer it are its sources.
func Seats(p *plan.Plan) []Seat {
	bytes := map[plan.ActorID]int64{}
	for _, a := range p.Predicted.Actors {
		bytes[a.ID] = a.Peak()
	}
	seats := make([]Seat, 0, len(p.Actors))
	for _, a := range p.Actors {
		s := Seat{Actor: a.ID, Node: a.Node, Bytes: bytes[a.ID]}
		seen := map[plan.ActorID]bool{}
		if program := p.Program(a.ID, plan.RecoverPhase); program != nil {
			for _, op := range program.Ops {
				if op.Kind == plan.Receive && op.Peer != plan.Trainer && !seen[op.Peer] {
					seen[op.Peer] = true
					s.Sources = append(s.Sources, op.Peer)
				}
			}
		}
		if rank, d, _ := a.ID.Rank(); a.ID.Role() == "shard" && len(s.Sources) == 0 && len(p.Parts(rank, d)) > 0 {
			s.Lost = true
		}
		seats = append(seats, s)
	}
	return seats
}

// settle makes the nodes of a plan the homes of seats.
func settle(seats []Seat, p *plan.Plan) {
	home := map[plan.ActorID]int{}
	for _, a := range p.Actors {
		home[a.ID] = a.Node
	}
	for i := range seats {
		seats[i].Home = home[seats[i].Actor]
	}
}

// workers are the nodes that may hold actors besides the trainer: nodes 1 to n, or node 0 in a run of one process.
func workers(nodes int) []int {
	if nodes == 0 {
		return []int{0}
	}
	list := make([]int, nodes)
	for i := range list {
		list[i] = i + 1
	}
	return list
}
