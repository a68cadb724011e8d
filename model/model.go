package model

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
)

// Port is one tensor that a segment reads or writes. For a micro-batch of rows sequences of
// context tokens it has rows*context*PerToken + rows*PerRow elements: of the type that the job stores tensors in,
// or, with Float, of the device's Float type: statistics and losses.
type Port struct {
	Name     string
	PerToken int
	PerRow   int
	Float    bool
}

// Len is the elements of the port for a micro-batch.
func (p Port) Len(rows, context int) int { return rows*context*p.PerToken + rows*p.PerRow }

func (p Port) String() string {
	if p.Float {
		return fmt.Sprintf("{%s %d %d float}", p.Name, p.PerToken, p.PerRow)
	}
	return fmt.Sprintf("{%s %d %d}", p.Name, p.PerToken, p.PerRow)
}

// Init says how a parameter starts. It is a pure function of (seed, name, element).
type Init struct {
	Kind InitKind
	// Std is the standard deviation of Normal.
	Std float64
}

type InitKind uint8

const (
	Zeros InitKind = iota
	Ones
	Normal
)

// Param is a tensor that is trained. Two layers that name the same parameter share it (a tied
// parameter); they must agree on the rest.
type Param struct {
	Name  string
	Shape []int
	Init  Init
	// Decay says whether weight decay applies: to matrices, not to gains and biases.
	Decay bool
}

// Len is the number of elements.
func (p Param) Len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// Cost is the work of one segment for one micro-batch.
type Cost struct {
	// Floating-point operations; a multiply and an add count as two.
	Forward, BackwardInput, BackwardWeight float64
	// Bytes moved to and from memory by the three together, at the least.
	Bytes float64
}

// Scratch is the elements of one of the functions Work and Sums of a Spec.
func Scratch(of func(rows, context int) int, rows, context int) int {
	if of == nil {
		return 0
	}
	return of(rows, context)
}

// Add returns the sum of two costs.
func (c Cost) Add(d Cost) Cost {
	return Cost{c.Forward + d.Forward, c.BackwardInput + d.BackwardInput, c.BackwardWeight + d.BackwardWeight, c.Bytes + d.Bytes}
}

// Total is all floating-point operations.
func (c Cost) Total() float64 { return c.Forward + c.BackwardInput + c.BackwardWeight }

// Spec says what a segment reads, writes and keeps. The executor allocates all of it.
type Spec struct {
	Name string
	// Tokens and Targets say that the segment reads the input tokens or the target tokens.
	Tokens, Targets bool
	Params          []Param
	// In are the ports of the segment before it (Out there), in order and with equal names and sizes.
	In, Out []Port
	// Saved is written by Forward and kept, with In and Out, until BackwardWeight.
	Saved []Port
	// Stash is written by BackwardInput and kept until BackwardWeight.
	Stash []Port
	// Work is scratch memory of each of the three calls, in elements of the type of ports; Sums is more of it, in
	// elements of the device's Float type. Nil stands for none.
	Work, Sums func(rows, context int) int
}

// Segment is the unit of compute: a part of a layer that runs without communication inside.
// The methods issue kernels and return; they keep no state between calls, allocate nothing and
// depend on nothing but the call.
type Segment interface {
	Spec() Spec
	// Forward writes c.Out and c.Saved from c.In, c.Params, c.Tokens and c.Targets.
	Forward(k device.Kernels, c *Call)
	// BackwardInput writes c.DIn and c.Stash from c.DOut and what the forward pass left.
	BackwardInput(k device.Kernels, c *Call)
	// BackwardWeight overwrites all of c.Grads.
	BackwardWeight(k device.Kernels, c *Call)
	// Cost is the work for a micro-batch of rows sequences of context tokens.
	Cost(rows, context int) Cost
}

// Call is one micro-batch in one segment. Slices that a phase does not use are zero.
type Call struct {
	Rows, Context int
	// Seed, Step and Sample (the global index of row 0 in the batch of the step) key the random
	// numbers. Layer is the index of the layer in the model.
	Seed   uint64
	Step   int64
	Sample int
	Layer  int
	// Training is false in evaluation: dropout is then off.
	Training bool
	// LossScale multiplies the gradient of the loss: 1 / tokens of the whole batch.
	LossScale float64

	Tokens, Targets device.Slice // I32 [rows*context]
	Params          []device.Slice
	In, Out         []device.Slice
	Saved, Stash    []device.Slice
	DOut, DIn       []device.Slice
	Grads           []device.Slice // one for each parameter, same order
	Work, Sums      device.Slice
}

// Layer is a unit of the partition: stages hold whole layers. One port leads from layer to layer.
type Layer struct {
	Name     string
	Segments []Segment
}

// Model is an ordered list of layers. The last segment of the last layer has the single output
// port "loss" (one element a token).
type Model struct {
	Kind    string
	Layers  []Layer
	Context int
	Vocab   int

	params  []Param
	buckets []Bucket
	layer   []layerInfo
}

// Bucket is a group of parameters that is reduced, updated and gathered as one flat vector. The
// parameters that belong to one layer alone are a bucket; each tied parameter is a bucket.
type Bucket struct {
	Name   string
	Params []Param
	// Offsets of the parameters in the flat vector, in elements.
	Offsets []int
	Len     int
	// Uses are the indices of the layers that use it, ascending. Each use has a gradient of its
	// own, and the owner sums the uses in this order.
	Uses []int
}

// Place says where a segment's parameter lies: the bucket, the use and the offset in the flat vector.
type Place struct {
	Bucket, Use, Offset, Len int
}

type layerInfo struct {
	buckets []int
	places  [][]Place // by segment, by parameter
}

// New checks the layers and builds the model: ports must match from segment to segment, the first
// segment reads nothing but tokens, and parameters of equal name must agree.
func New(kind string, context, vocab int, layers []Layer) (*Model, error) {
	m := &Model{Kind: kind, Layers: layers, Context: context, Vocab: vocab}
	if len(layers) == 0 {
		return nil, fmt.Errorf("model: no layers")
	}
	var before []Port
	first := true
	type seen struct {
		p    Param
		uses []int
	}
	params := map[string]*seen{}
	var order []string
	layerNames := map[string]bool{}
	for li, l := range layers {
		if l.Name == "" || layerNames[l.Name] {
			return nil, fmt.Errorf("model: layer %d has the name %q, which is empty or taken", li, l.Name)
		}
		layerNames[l.Name] = true
		if len(l.Segments) == 0 {
			return nil, fmt.Errorf("model: layer %d (%s) has no segments", li, l.Name)
		}
		for _, s := range l.Segments {
			sp := s.Spec()
			if first && len(sp.In) > 0 {
				return nil, fmt.Errorf("model: the first segment (%s) reads port %q, but nothing comes before it", sp.Name, sp.In[0].Name)
			}
			first = false
			if !samePorts(before, sp.In) {
				return nil, fmt.Errorf("model: layer %d (%s), segment %s reads ports %v, but the segment before writes %v", li, l.Name, sp.Name, sp.In, before)
			}
			before = sp.Out
			for _, p := range sp.Params {
				if p.Name == "" || p.Len() <= 0 {
					return nil, fmt.Errorf("model: layer %d (%s), segment %s: parameter %q has shape %v", li, l.Name, sp.Name, p.Name, p.Shape)
				}
				e := params[p.Name]
				if e == nil {
					e = &seen{p: p}
					params[p.Name] = e
					order = append(order, p.Name)
				}
				if !sameParam(e.p, p) {
					return nil, fmt.Errorf("model: parameter %q is %v in layer %d (%s) and %v in layer %d: a tied parameter must agree", p.Name, p, li, l.Name, e.p, e.uses[0])
				}
				if n := len(e.uses); n == 0 || e.uses[n-1] != li {
					e.uses = append(e.uses, li)
				} else {
					return nil, fmt.Errorf("model: layer %d (%s) uses parameter %q twice", li, l.Name, p.Name)
				}
			}
		}
	}
	for li := range layers[:len(layers)-1] {
		if out := m.Out(li); len(out) != 1 {
			return nil, fmt.Errorf("model: layer %d (%s) writes %d ports; between layers there is exactly one", li, layers[li].Name, len(out))
		}
	}
	if len(before) != 1 || before[0] != (Port{Name: "loss", PerToken: 1, Float: true}) {
		return nil, fmt.Errorf("model: the last segment writes %v; it must write the one port {loss 1 0 float}", before)
	}

	// Buckets in the order in which their first parameter appears.
	where := map[string][2]int{} // parameter -> bucket, index in it
	own := map[int]int{}         // layer -> its bucket of untied parameters
	for _, name := range order {
		e := params[name]
		m.params = append(m.params, e.p)
		bi := -1
		if len(e.uses) == 1 {
			if b, ok := own[e.uses[0]]; ok {
				bi = b
			}
		}
		if bi < 0 {
			bi = len(m.buckets)
			b := Bucket{Name: name, Uses: e.uses}
			if len(e.uses) == 1 {
				b.Name = layers[e.uses[0]].Name
				own[e.uses[0]] = bi
			}
			m.buckets = append(m.buckets, b)
		}
		b := &m.buckets[bi]
		where[name] = [2]int{bi, len(b.Params)}
		b.Params = append(b.Params, e.p)
		b.Offsets = append(b.Offsets, b.Len)
		b.Len += e.p.Len()
	}
	m.layer = make([]layerInfo, len(layers))
	for li, l := range layers {
		info := &m.layer[li]
		has := map[int]bool{}
		for _, s := range l.Segments {
			var places []Place
			for _, p := range s.Spec().Params {
				w := where[p.Name]
				b := m.buckets[w[0]]
				use := 0
				for b.Uses[use] != li {
					use++
				}
				places = append(places, Place{Bucket: w[0], Use: use, Offset: b.Offsets[w[1]], Len: p.Len()})
				if !has[w[0]] {
					has[w[0]] = true
					info.buckets = append(info.buckets, w[0])
				}
			}
			info.places = append(info.places, places)
		}
	}
	return m, nil
}

// Params are all parameters, each once, in canonical order: that of their first use.
func (m *Model) Params() []Param { return m.params }

// Buckets in canonical order.
func (m *Model) Buckets() []Bucket { return m.buckets }

// LayerBuckets are the buckets that a layer uses.
func (m *Model) LayerBuckets(layer int) []int { return m.layer[layer].buckets }

// Places says where the parameters of a segment lie, in the order of Spec.Params.
func (m *Model) Places(layer, segment int) []Place { return m.layer[layer].places[segment] }

// Len is the number of parameters (elements), each tied one counted once.
func (m *Model) Len() int {
	n := 0
	for _, p := range m.params {
		n += p.Len()
	}
	return n
}

// In and Out are the ports at the edges of a layer.
func (m *Model) In(layer int) []Port { return m.Layers[layer].Segments[0].Spec().In }
func (m *Model) Out(layer int) []Port {
	s := m.Layers[layer].Segments
	return s[len(s)-1].Spec().Out
}

// LayerCost is the cost of a whole layer for a micro-batch.
func (m *Model) LayerCost(layer, rows, context int) Cost {
	var c Cost
	for _, s := range m.Layers[layer].Segments {
		c = c.Add(s.Cost(rows, context))
	}
	return c
}

func samePorts(a, b []Port) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func sameParam(a, b Param) bool {
	if a.Name != b.Name || a.Init != b.Init || a.Decay != b.Decay || len(a.Shape) != len(b.Shape) {
		return false
	}
	for i := range a.Shape {
		if a.Shape[i] != b.Shape[i] {
			return false
		}
	}
	return true
}
