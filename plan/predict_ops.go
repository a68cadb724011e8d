package plan

import "github.com/troupe-train/troupe/model"

// run charges one operation as the executors of stages, shards and the trainer do.
func (m *memory) run(op *Op) {
	switch op.Kind {
	case Send, Offer:
		// An offer that nobody needs is not made.
		if len(op.Writes) > 0 && m.offers {
			m.outbox = append(m.outbox, m.alloc(messageBytes, m.bytes(op.As)))
		}
		if len(op.Reads) > 0 {
			m.outbox = append(m.outbox, m.values[op.Reads[0]].retain())
		}
	case Forward:
		m.forward(op)
	case BackwardInput:
		m.backwardInput(op)
	case BackwardWeight:
		for _, v := range op.Writes {
			m.values[v] = m.alloc(gradientBytes, elementBytes*int64(m.pl.Model.Buckets()[v.Index].Len))
		}
		for _, s := range m.segments(op) {
			m.work(s, op)
		}
	case Add:
		// The sum is made in the memory of the lower child.
		m.values[op.Writes[0]] = m.values[op.Reads[0]].retain()
	case Reduce:
		m.values[op.Writes[0]] = m.reduce(op)
	case Update:
		// The next state is made beside the old one.
		_, d, _ := m.actor.Rank()
		n := elementBytes * int64(m.pl.Buckets[op.Bucket].Pieces[d].Len())
		next := m.alloc(parameterBytes, n)
		m.next = append(m.next, next, m.alloc(optimizerBytes, n*m.moments()))
		if m.pl.Job.Train.Precision == BF16 {
			m.values[op.Writes[0]] = m.alloc(messageBytes, m.bytes(op.Writes[0]))
		} else {
			m.values[op.Writes[0]] = next.retain()
		}
	case Restore, Advance:
		// The masters themselves are published, or copies of fewer bytes.
		for _, v := range op.Writes {
			if m.pl.Job.Train.Precision == BF16 {
				m.values[v] = m.alloc(messageBytes, m.bytes(v))
			}
		}
	case Hold:
		m.hold(op)
	case Feed, SquareNorm, Decide, Collect:
		for _, v := range op.Writes {
			m.values[v] = m.alloc(messageBytes, m.bytes(v))
		}
	}
}

// advance charges what the first operation of the next step does. A shard puts the next state in the place of
// the old one. A mirror makes it: new weights of one part after the other beside the old ones.
func (m *memory) advance() {
	release(m.next)
	p, d, _ := m.actor.Rank()
	for i, b := range m.held {
		n := elementBytes * int64(m.pl.Parts(p, d)[i].Range.Len())
		m.take(parameterBytes, n)
		m.take(parameterBytes, -n)
		b.release()
	}
}

// hold keeps what an update is made of, part by part.
func (m *memory) hold(op *Op) {
	for _, v := range op.Reads {
		if v.Kind == Reduced {
			m.held = append(m.held, m.values[v].retain())
		}
	}
}

func (m *memory) segments(op *Op) []model.Spec {
	var specs []model.Spec
	for layer := op.Lo; layer < op.Hi; layer++ {
		for _, s := range m.pl.Model.Layers[layer].Segments {
			specs = append(specs, s.Spec())
		}
	}
	return specs
}

// ports charges tensors of a micro-batch.
func (m *memory) ports(purpose int, ports []model.Port, op *Op) []*buffer {
	var buffers []*buffer
	for _, p := range ports {
		buffers = append(buffers, m.alloc(purpose, m.portBytes(p, batchesOf(m.pl, m.phase)[op.Micro].Rows)))
	}
	return buffers
}

// work charges scratch memory for the time of a call.
func (m *memory) work(s model.Spec, op *Op) {
	rows, context := batchesOf(m.pl, m.phase)[op.Micro].Rows, m.pl.Model.Context
	n := m.pl.Job.stored()*int64(model.Scratch(s.Work, rows, context)) + elementBytes*int64(model.Scratch(s.Sums, rows, context))
	m.take(workBytes, n)
	m.take(workBytes, -n)
}

// forward keeps inputs, outputs and what segments save until W; in evaluation, only until the next
// segment is done. What leaves the chunk is a message, in the outbox until the commit.
func (m *memory) forward(op *Op) {
	var inputs, kept []*buffer
	for _, v := range op.Reads {
		inputs = append(inputs, m.values[v].retain())
	}
	in := inputs
	specs := m.segments(op)
	for i, s := range specs {
		purpose := activationBytes
		if i == len(specs)-1 {
			purpose = messageBytes
		}
		out := m.ports(purpose, s.Out, op)
		saved := m.ports(activationBytes, s.Saved, op)
		m.work(s, op)
		if m.phase == TrainPhase {
			kept = append(append(kept, out...), saved...)
		} else {
			release(saved)
			release(in)
		}
		in = out
	}
	last := op.Writes[len(op.Writes)-1]
	m.values[last] = in[0].retain()
	if last.Kind == Loss {
		// The losses of the tokens end in their sum.
		sum := m.alloc(messageBytes, statBytes)
		m.values[last].release()
		m.values[last] = sum
	}
	if m.phase == TrainPhase {
		m.saved[op.Micro] = append(inputs, kept...)
	} else {
		release(in)
	}
}

// backwardInput keeps the gradients between segments and what they stash until W.
func (m *memory) backwardInput(op *Op) {
	var kept, grads []*buffer
	for _, v := range op.Reads {
		if v.Kind == ActivationGrad {
			grads = append(grads, m.values[v].retain())
		}
	}
	specs := m.segments(op)
	for i := len(specs) - 1; i >= 0; i-- {
		kept = append(append(kept, grads...), m.ports(activationBytes, specs[i].Stash, op)...)
		purpose := activationBytes
		if i == 0 {
			purpose = messageBytes
		}
		grads = m.ports(purpose, specs[i].In, op)
		m.work(specs[i], op)
	}
	m.stashed[op.Micro] = kept
	if last := op.Writes[len(op.Writes)-1]; last.Kind == ActivationGrad {
		m.values[last] = grads[0]
	}
}

// reduce finishes the trees of all uses and adds them up. Sums go into the memory of a sum where
// there is one; the result of a single part is that part.
func (m *memory) reduce(op *Op) *buffer {
	_, d, _ := m.actor.Rank()
	bytes := elementBytes * int64(m.pl.Buckets[op.Bucket].Pieces[d].Len())
	type operand struct {
		*buffer
		own bool
	}
	add := func(a, b operand) operand {
		switch {
		case a.own:
			if b.own {
				b.release()
			}
			return a
		case b.own:
			return b
		}
		return operand{m.alloc(gradientBytes, bytes), true}
	}
	var total operand
	for reads, use := op.Reads, 0; len(reads) > 0; use++ {
		var nodes []Range
		var terms []operand
		for len(reads) > 0 && reads[0].Use == use {
			nodes = append(nodes, Range{reads[0].Lo, reads[0].Hi})
			terms = append(terms, operand{buffer: m.values[reads[0]]})
			reads = reads[1:]
		}
		sums, err := Merge(nodes, len(m.pl.Train))
		if err != nil {
			panic(err) // the lowering makes covers
		}
		for _, s := range sums {
			terms[s.Into] = add(terms[s.Into], terms[s.From])
		}
		if use == 0 {
			total = terms[0]
		} else {
			total = add(total, terms[0])
		}
	}
	if !total.own {
		total.retain()
	}
	return total.buffer
}
