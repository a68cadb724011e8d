package actors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-train/troupe/messages"
)

// Gather waits until all nodes have joined and all actors hear each other, and opens the run. The
// actors of node 0 must be alive. The number of a node that dies or leaves meanwhile is free for another one. The error says
// who is missing, and is a Short when the time is over; it ends at once when a node says that it is unfit, and with ErrLost when one is out of reach that may come
// back: then only another attempt is safe from it.
func (c *Coordinator) Gather(ctx context.Context) error {
	if c.control == nil {
		c.enter(messages.Phase_PHASE_RUNNING, "")
		return nil
	}
	if c.options.Join > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.options.Join)
		defer cancel()
	}
	greeting, cancel := context.WithCancel(ctx)
	greeted := make(chan struct{})
	go func() {
		defer close(greeted)
		err := c.node.transport.greet(greeting, func(missing []string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.missing = missing
			c.wake()
		})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.greeted = err == nil
		c.wake()
	}()
	err := c.gathered(ctx)
	cancel()
	<-greeted
	if err == nil {
		c.beat() // so that they hear of it at once
	}
	return err
}

// A start-up that is quick needs one line, the last. One that is slow tells every second what is
// new, and every few seconds that nothing is.
const (
	tellNews = time.Second
	tellAll  = 5 // times tellNews
)

// gathered waits until everybody is ready, and tells how far it is. Whoever is lost later is lost in the middle of the run.
func (c *Coordinator) gathered(ctx context.Context) error {
	ticker := time.NewTicker(c.tell)
	defer ticker.Stop()
	before := ""
	for quiet, tick := 0, false; ; {
		c.mu.Lock()
		list, complete := c.checklist(c.node.Now())
		lost, changed := c.lost, c.changed
		if lost == nil && complete {
			c.phase = messages.Phase_PHASE_RUNNING
		}
		c.mu.Unlock()
		switch {
		case lost != nil:
			return lost
		case complete:
			c.options.Progress(list)
			return nil
		}
		if head, _, _ := strings.Cut(list, " since "); tick && (head != before || quiet >= tellAll) {
			before, quiet = head, 0
			c.options.Progress(list)
		}
		tick = false
		select {
		case <-changed:
		case <-ticker.C:
			quiet++
			tick = true
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return c.short(list)
			}
			return context.Cause(ctx)
		}
	}
}

// Short is why Gather has ended when not all was ready in time.
type Short struct {
	// Joined is how many of Nodes had joined, node 0 apart.
	Joined, Nodes int
	list          string
}

func (s Short) Error() string { return "actors: gave up: " + s.list }

func (c *Coordinator) short(list string) Short {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Short{Nodes: c.options.Nodes - 1, list: list}
	for _, m := range c.members[1:] {
		if m != nil && !m.gone {
			s.Joined++
		}
	}
	return s
}

// checklist says how far the nodes are. c.mu is held.
func (c *Coordinator) checklist(now time.Time) (line string, complete bool) {
	since := now.Sub(c.began).Round(time.Second)
	joined, ready := 0, 0 // of the nodes besides this one
	var waiting, unready []string
	if !c.greeted {
		unready = append(unready, nodeName(0)+deaf(c.missing))
	}
	for i, m := range c.members[1:] {
		switch {
		case m == nil || m.gone:
			waiting = append(waiting, fmt.Sprint(i+1))
			continue
		case m.state == messages.State_STATE_READY:
			ready++
		case m.state == messages.State_STATE_SPAWNED:
			unready = append(unready, m.name+deaf(m.missing))
		default:
			unready = append(unready, m.name+" (building its actors)")
		}
		joined++
	}
	all := len(c.members) - 1
	if len(waiting) > 0 {
		noun := "node"
		if len(waiting) > 1 {
			noun = "nodes"
		}
		return fmt.Sprintf("%d/%d nodes joined; waiting for %s %s since %s", joined, all, noun, strings.Join(waiting, ", "), seconds(since)), false
	}
	if len(unready) > 0 {
		return fmt.Sprintf("%d/%d nodes ready; waiting for %s since %s", ready, all, strings.Join(unready, ", "), seconds(since)), false
	}
	return fmt.Sprintf("%d/%d nodes ready", ready, all), true
}

func seconds(d time.Duration) string { return fmt.Sprintf("%d s", int(d.Seconds())) }

// deaf says whom a node does not hear yet.
func deaf(missing []string) string {
	const most = 3
	if len(missing) == 0 {
		return ""
	}
	more := ""
	if len(missing) > most {
		more = fmt.Sprintf(" and %d more", len(missing)-most)
		missing = missing[:most]
	}
	return fmt.Sprintf(" (it does not hear %s%s)", strings.Join(missing, ", "), more)
}

// enter begins a phase and says so at once.
func (c *Coordinator) enter(p messages.Phase, reason string) {
	c.mu.Lock()
	if p > c.phase {
		c.phase, c.reason = p, reason
	}
	c.mu.Unlock()
	c.beat()
}

// Shutdown ends the run on all nodes: in good order, or for a reason. It returns when every node
// has said that it left, or ctx ends; the error names who did not. Then the watch is over.
func (c *Coordinator) Shutdown(ctx context.Context, reason string) error {
	return c.shut(ctx, reason, false)
}

// Ending says that the run ends after the step that is running: nodes that are asked to leave stay until then.
func (c *Coordinator) Ending() {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	c.beat()
}

// Again is Shutdown because another attempt begins, which the nodes join.
func (c *Coordinator) Again(ctx context.Context) error { return c.shut(ctx, "", true) }

func (c *Coordinator) shut(ctx context.Context, reason string, again bool) error {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return nil
	}
	c.over, c.again = true, again
	c.mu.Unlock()
	c.enter(messages.Phase_PHASE_STOPPING, reason)
	err := c.left(ctx)
	close(c.stop)
	<-c.done
	c.doubts.end()
	if c.control != nil {
		c.control.close()
	}
	return err
}

// left waits until every node that joined has left or was lost.
func (c *Coordinator) left(ctx context.Context) error {
	for {
		c.mu.Lock()
		var here []string
		for _, m := range c.members {
			if m != nil && !m.gone {
				here = append(here, m.name)
			}
		}
		changed := c.changed
		c.mu.Unlock()
		if len(here) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("actors: %s did not leave: %w", strings.Join(here, ", "), context.Cause(ctx))
		}
	}
}
