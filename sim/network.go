package sim

import (
	"fmt"
	"hash/crc32"
	"time"

	"github.com/troupe-train/troupe/actors/machine"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is the checksum of a payload; 0 for one that the CPU cannot read.
func sum(p machine.Payload) uint32 {
	switch p := p.(type) {
	case machine.Tensor:
		return crc32.Checksum(p.HostBytes(), castagnoli)
	case machine.Blob:
		return crc32.Checksum(p, castagnoli)
	case interface{ Sum() uint32 }:
		return p.Sum()
	}
	return 0
}

// send puts a message, and perhaps a copy, on the network. Each holds its own reference.
func (w *world) send(a *actor, m machine.Message) {
	if w.byID[m.Name.To] == nil {
		w.err = fmt.Errorf("sim: there is no actor %s for %s", m.Name.To, m.Name)
		return
	}
	w.result.Messages++
	copies := 1
	if w.Network.Duplicates > 0 && w.draw() < w.Network.Duplicates {
		copies++
		w.result.Duplicates++
	}
	var late time.Duration
	if w.cluster != nil {
		var more int
		more, late = w.cluster.travels(m)
		copies += more
	}
	if m.Payload != nil {
		w.result.Sent[m.Name.Value.Kind] += m.Payload.Bytes()
		if w.cluster != nil {
			m.Sum = sum(m.Payload)
		}
	}
	for range copies {
		if m.Payload != nil {
			m.Payload.Retain()
		}
		w.push(w.delay()+late, moment{to: m.Name.To, from: a, event: machine.Arrived{Message: m}})
	}
}

func (w *world) delay() time.Duration {
	n := &w.Network
	d := n.DelayMin
	if n.DelayMax > n.DelayMin {
		d += time.Duration(w.draw() * float64(n.DelayMax-n.DelayMin))
	}
	if n.Stragglers > 0 && w.draw() < n.Stragglers {
		d *= time.Duration(n.StragglerFactor)
	}
	return d
}

// receiver finds who a moment happens to; nil when nobody does, or not yet.
func (w *world) receiver(m *moment) *actor {
	a := m.actor
	if a == nil {
		a = w.byID[m.to]
	}
	if w.cluster != nil && a != nil {
		var wait time.Duration
		if a, wait = w.cluster.route(m, a); wait > 0 {
			w.push(wait, *m)
			return nil
		}
	}
	if a == nil || a.dead {
		release(machine.Discard(m.event))
		return nil
	}
	return a
}
