package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-train/troupe/actors"
	"github.com/troupe-train/troupe/plan"
)

// anew makes the plan of an attempt over a number of nodes. When they are fewer than wanted, spares get actors first, and then
// the nodes that are there get more of them, until others come.
func (r *run) anew(nodes int) error {
	n, whole := nodes, nodes
	if nodes > 0 {
		whole = r.wanted - r.plan.Job.Cluster.Spares
		n = min(nodes, whole)
	}
	p, err := plan.New(r.plan.Job, r.plan.Model, plan.Options{Resume: r.store.resumes(), Nodes: n})
	if err != nil {
		return err
	}
	if err := p.Fits(); err != nil {
		return err
	}
	r.plan, r.nodes, r.spares = p, n, nodes-n
	r.store.use(p)
	r.rounds = rounds(p, r.store.first(), r.options.stopAt)
	r.ledger.back(p, r.rounds.First, r.rounds.Until)
	seats := Seats(p)
	if n < whole {
		if p, err = plan.New(r.plan.Job, r.plan.Model, plan.Options{Resume: r.store.resumes(), Nodes: whole}); err != nil {
			return err
		}
		settle(seats, p)
	}
	r.recovery.Begin(seats, r.hosts())
	return nil
}

// fewer prepares an attempt over the nodes that have come, when others have not in time: a job that goes on from a checkpoint
// goes on with those that are there, as it does when nodes are lost in its middle. Those that come later are used.
func (r *run) fewer(err error) bool {
	var short actors.Short
	if r.resumes == 0 || !errors.As(err, &short) || short.Joined == 0 || short.Joined == short.Nodes {
		return false
	}
	came := fmt.Sprintf("%d of %s came within %s", short.Joined, count(short.Nodes, "node", "nodes"), r.limits.Join)
	if err := r.anew(short.Joined); err != nil {
		r.decided(Noted{fmt.Sprintf("%s: no going on with %d: %v", came, short.Joined, err)})
		return false
	}
	r.decided(Noted{fmt.Sprintf("%s: going on with %d", came, short.Joined)})
	r.gathers = time.Now()
	return true
}

// stands notes which checkpoint is the newest: the one that an attempt begins from, if there is one.
func (r *run) stands() {
	r.saved.Store(-1)
	if r.store.resumes() {
		r.saved.Store(r.store.first())
	}
}

// resumption says, at the end of why a run has ended, that it can go on, if it can.
func (r *run) resumption() string {
	if step := r.saved.Load(); step >= 0 {
		return fmt.Sprintf("; --resume goes on at train step %d", step)
	}
	return ""
}

// again ends an attempt because another one begins. A node that does not leave now comes when it hears of that.
func (r *run) again(ctx context.Context, c *actors.Coordinator) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	if err := c.Again(ctx); err != nil {
		r.note(err.Error())
	}
}

// gather waits until all nodes are ready, of which the crew starts those that are not there.
func (r *run) gather(ctx context.Context, c *actors.Coordinator) error {
	if r.crew == nil {
		return c.Gather(ctx)
	}
	return r.crew.gather(ctx, c)
}
