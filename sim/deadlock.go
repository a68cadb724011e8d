package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
	"github.com/troupe-train/troupe/plan"
)

// Deadlock is the error of a run in which nothing is left to happen although it has not ended.
type Deadlock struct {
	Time time.Duration
	// Chain leads from the trainer to the one to blame: each actor waits for a value of the next. The
	// last waits for nobody, or for one that is in the chain.
	Chain []Link
}

// Link is an actor and what it waits for.
type Link struct {
	Actor plan.ActorID
	Wait  machine.Wait
}

func (d *Deadlock) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sim: deadlock after %s", d.Time)
	for _, l := range d.Chain {
		fmt.Fprintf(&b, "; %s is %s", l.Actor, l.Wait)
	}
	return b.String()
}

func (w *world) deadlock() error {
	d := &Deadlock{Time: w.now}
	for id := plan.Trainer; id != ""; {
		if slices.ContainsFunc(d.Chain, func(l Link) bool { return l.Actor == id }) {
			break
		}
		a := w.byID[id]
		if a == nil {
			break
		}
		wait := a.Machine.Waiting()
		d.Chain = append(d.Chain, Link{id, wait})
		id = wait.From
	}
	return d
}
