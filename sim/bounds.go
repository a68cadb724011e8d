package sim

import (
	"fmt"
	"sync"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
)

// bound is the most memory that an actor may need. recovery is what the plan says of a round in which one life begins anew,
// and state what every further life may ask it for.
type bound struct{ recovery, state int64 }

// slack is the part of a prediction by which a run may be off, as in a run of real processes: the plan knows in which order an
// actor works, but not when others give back what they had from it.
const slack = 0.05

// bounds are those of all actors, by the shares of a round.
type bounds struct {
	plan  *plan.Plan
	mu    sync.Mutex
	known map[plan.Shares]map[plan.ActorID]bound
}

func (b *bounds) of(s plan.Shares, id plan.ActorID) (bound, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known[s] == nil {
		p := b.plan
		if s != "" {
			var err error
			if p, err = p.Reshare(s); err != nil {
				return bound{}, err
			}
		}
		all := map[plan.ActorID]bound{}
		for _, a := range p.Predicted.Actors {
			all[a.ID] = bound{a.Recovery + int64(slack*float64(a.Recovery)), a.Parameters + a.Optimizer}
		}
		b.known[s] = all
	}
	return b.known[s][id], nil
}

// bounded is an executor that fails when its actor has needed more memory than recoveries may.
type bounded struct {
	machine.Executor
	account *device.Account
	id      plan.ActorID
	run     *run
	most    bound // by all shares that it has run
}

func (x *bounded) Run(k device.Kernels, r plan.Round, op *plan.Op, in []machine.Payload) ([]machine.Payload, error) {
	out, err := x.Executor.Run(k, r, op, in)
	if err != nil {
		return out, err
	}
	b, err := x.run.bounds.of(r.Shares, x.id)
	if err != nil {
		return out, err
	}
	x.most = bound{max(x.most.recovery, b.recovery), max(x.most.state, b.state)}
	limit := x.most.recovery + int64(max(x.run.begun-1, 0))*x.most.state
	if peak := x.account.Peak(); peak > limit {
		panic(fmt.Sprintf("sim: %s needed %d bytes; with all that the recoveries need, %d are legal", x.id, peak, limit))
	}
	return out, nil
}

func (x *bounded) Close() {
	if c, ok := x.Executor.(interface{ Close() }); ok {
		c.Close()
	}
}
