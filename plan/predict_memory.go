package plan

import (
	"sort"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
)

// What memory is for, as the labels of a device account.
const (
	parameterBytes = iota
	gradientBytes
	optimizerBytes
	activationBytes
	messageBytes
	workBytes
	purposes
)

// elementBytes is the size of a float32 and an int32, statBytes that of a float64.
const elementBytes, statBytes = 4, 8

// stored is the size of an element of what stages store.
func (j *Job) stored() int64 { return int64(j.Train.Stored(device.F32).Size()) }

// portBytes is the size of a tensor of a micro-batch.
func (m *memory) portBytes(p model.Port, rows int) int64 {
	n := int64(p.Len(rows, m.pl.Model.Context))
	if p.Float {
		return elementBytes * n
	}
	return m.pl.Job.stored() * n
}

// account is what an actor holds, by purpose, and what it held when that was the most.
type account struct {
	held, most [purposes]int64
	sum, peak  int64
}

func (a *account) take(purpose int, bytes int64) {
	a.held[purpose] += bytes
	if a.sum += bytes; a.sum > a.peak {
		a.peak, a.most = a.sum, a.held
	}
}

// buffer is memory charged to an account, counted by reference. The nil buffer is charged to another actor.
type buffer struct {
	account *account
	purpose int
	bytes   int64
	refs    int
}

func (a *account) alloc(purpose int, bytes int64) *buffer {
	a.take(purpose, bytes)
	return &buffer{a, purpose, bytes, 1}
}

func (b *buffer) retain() *buffer {
	if b != nil {
		b.refs++
	}
	return b
}

func (b *buffer) release() {
	if b == nil {
		return
	}
	if b.refs--; b.refs == 0 {
		b.account.take(b.purpose, -b.bytes)
	}
}

func release(buffers []*buffer) {
	for _, b := range buffers {
		b.release()
	}
}

// memory follows one program with an account.
type memory struct {
	*account
	pl     *Plan
	phase  Phase
	actor  ActorID
	node   map[ActorID]int
	values map[Value]*buffer
	// saved and stashed are what a micro-batch keeps between F, B and W at a stage.
	saved, stashed map[int][]*buffer
	outbox         []*buffer
	// offers says that what is offered is needed, and made.
	offers bool
	// next is the next state of a shard, and held the gradients of a mirror, from the update to the commit.
	next, held []*buffer
}

func newMemory(pl *Plan, ph Phase, i int, node map[ActorID]int, a *account) *memory {
	return &memory{
		account: a, pl: pl, phase: ph, actor: pl.Actors[i].ID, node: node,
		values: map[Value]*buffer{}, saved: map[int][]*buffer{}, stashed: map[int][]*buffer{},
	}
}

// measure follows the program of actor i, whose account goes from phase to phase with what lasts.
func measure(pl *Plan, ph Phase, i int, node map[ActorID]int, t times, a *account) {
	m := newMemory(pl, ph, i, node, a)
	if ph == InitPhase {
		m.found()
	}
	arrivals := m.arrivals(i, t)
	ops := pl.Program(m.actor, ph).Ops
	for k := range ops {
		for len(arrivals) > 0 && arrivals[0].at <= t.start[i][k] {
			v := arrivals[0].value
			m.values[v] = m.alloc(messageBytes, m.bytes(v))
			arrivals = arrivals[1:]
		}
		m.run(&ops[k])
		m.free(&ops[k])
	}
	release(m.outbox) // the commit
	m.advance()
}

// free gives back what ends with an operation.
func (m *memory) free(op *Op) {
	for _, v := range op.Frees {
		switch v.Kind {
		case Saved:
			release(m.saved[v.Lo])
			delete(m.saved, v.Lo)
		case Stashed:
			release(m.stashed[v.Lo])
			delete(m.stashed, v.Lo)
		default:
			m.values[v].release()
			delete(m.values, v)
		}
	}
}

// found charges what lasts from Init on: the parameters of a stage; weights and moments of a shard or mirror.
func (m *memory) found() {
	p, d, _ := m.actor.Rank()
	switch m.actor.Role() {
	case "stage":
		seen := map[int]bool{}
		for layer := range span(m.pl.Stages[p]) {
			for _, b := range m.pl.Model.LayerBuckets(layer) {
				if !seen[b] {
					seen[b] = true
					m.take(parameterBytes, m.pl.Job.stored()*int64(m.pl.Model.Buckets()[b].Len))
				}
			}
		}
	case "shard", "mirror":
		n := m.owned(p, d)
		m.take(parameterBytes, elementBytes*n)
		m.take(optimizerBytes, elementBytes*n*m.moments())
	}
}

// owned is the elements of a shard.
func (m *memory) owned(p, d int) (n int64) {
	for _, part := range m.pl.Parts(p, d) {
		n += int64(part.Range.Len())
	}
	return n
}

// moments is the vectors that the optimizer keeps for each weight: mean and square, or momentum.
func (m *memory) moments() int64 {
	if m.pl.Job.Train.Optimizer.Kind == "adamw" {
		return 2
	}
	return 1
}

type arrival struct {
	at    float64
	value Value
}

// arrivals are the messages from other nodes, which are charged to the receiver, by time of sending.
func (m *memory) arrivals(i int, t times) []arrival {
	var list []arrival
	for _, op := range m.pl.Program(m.actor, m.phase).Ops {
		if op.Kind == Receive && m.node[op.Peer] != m.pl.Actors[i].Node {
			list = append(list, arrival{t.sent[wire{op.Peer, m.actor, op.Writes[0]}], op.Writes[0]})
		}
	}
	sort.SliceStable(list, func(a, b int) bool { return list[a].at < list[b].at })
	return list
}

// bytes is the size of a message.
func (m *memory) bytes(v Value) int64 {
	rows := func() int { return batchesOf(m.pl, m.phase)[v.Lo].Rows }
	switch v.Kind {
	case Tokens, Targets:
		return elementBytes * int64(rows()) * int64(m.pl.Model.Context)
	case Activation, ActivationGrad:
		return m.portBytes(m.pl.Model.In(v.Index)[0], rows())
	case Parameters:
		return m.pl.Job.stored() * int64(m.pl.Buckets[v.Index].Pieces[v.Piece].Len())
	case Gradient, Reduced:
		return elementBytes * int64(m.pl.Buckets[v.Index].Pieces[v.Piece].Len())
	case Loss, Verdict:
		return statBytes
	case Norm:
		return statBytes * m.blocks(v.Index, v.Piece)
	case State:
		return elementBytes * m.owned(v.Index, v.Piece) * (1 + m.moments())
	}
	return 0
}

func (m *memory) blocks(p, d int) (n int64) {
	for _, part := range m.pl.Parts(p, d) {
		n += int64(len(part.Blocks))
	}
	return n
}
