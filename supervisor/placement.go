package supervisor

import (
	"slices"
	"strings"

	"github.com/troupe-train/troupe/plan"
)

// choose finds a node for an actor whose own node may be lost, or is to be left if leave says so and
// another is there. What counts, most first: that the node is not next to the actor's partner, that it
// has not made trouble lately, that it holds no actors (a spare), that little memory is predicted to be used on it, its number.
func (r *Recovery) choose(l *life, leave bool) (node int, ok bool) {
	if l.Actor == plan.Trainer {
		return l.Node, true // it lives in the process that holds the run
	}
	if h := r.nodes[l.Node]; h != nil && h.alive && !leave && !r.now.Before(h.avoid) {
		return l.Node, true
	}
	type rank [4]int64
	var best rank
	for n, h := range r.nodes {
		if !h.alive {
			continue
		}
		var x rank
		if r.holdsPartner(n, l) {
			x[0] += 2
		}
		if n == l.Node && leave {
			x[0]++ // the node that it leaves is better than its partner's
		}
		if r.now.Before(h.avoid) {
			x[1] = 1
		}
		x[2] = r.load(n, l)
		x[3] = int64(n)
		if !ok || slices.Compare(x[:], best[:]) < 0 {
			node, best, ok = n, x, true
		}
	}
	return node, ok
}

// load is the bytes that the actors of a node are predicted to need, without l. A node without any has 0.
func (r *Recovery) load(node int, l *life) int64 {
	var sum int64
	for _, other := range r.lives {
		if other != l && other.Node == node && other.state != waiting && other.state != stranded {
			sum += max(other.Bytes, 1)
		}
	}
	return sum
}

func (r *Recovery) holdsPartner(node int, l *life) bool {
	p := r.byID[partner(l.Actor)]
	return p != nil && p.Node == node && r.nodes[node] != nil && r.nodes[node].alive
}

// partner is the actor that holds the same state: a shard's mirror, and a mirror's shard.
func partner(a plan.ActorID) plan.ActorID {
	role, rank, _ := strings.Cut(string(a), ".")
	switch role {
	case "shard":
		return plan.ActorID("mirror." + rank)
	case "mirror":
		return plan.ActorID("shard." + rank)
	}
	return ""
}

// another reports whether there is a node besides the given one.
func (r *Recovery) another(node int) bool {
	for n, h := range r.nodes {
		if n != node && h.alive {
			return true
		}
	}
	return false
}

// crowded reports whether an actor shares its node with actors that the plan has put there, or with a
// partner.
func (r *Recovery) crowded(l *life) bool {
	for _, other := range r.lives {
		if other != l && other.Node == l.Node && (other.home == other.Node || other.Actor == partner(l.Actor)) {
			return true
		}
	}
	return false
}
