package stage

import (
	"fmt"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
)

// Weights are the flat parameter vectors of the buckets that a range of layers uses.
type Weights struct {
	model   *model.Model
	device  device.Device
	store   device.DType
	account *device.Account
	layers  plan.Range
	vectors map[int]device.Slice
}

// NewWeights allocates the vectors, with undefined contents, of the type that tensors are stored in: the device's Float
// type, or BF16 on a device of F32.
func NewWeights(d device.Device, store device.DType, account *device.Account, m *model.Model, layers plan.Range) (*Weights, error) {
	if store != d.Float() && (store != device.BF16 || d.Float() != device.F32) {
		return nil, fmt.Errorf("tensors cannot be stored as %s on device %s, which works in %s", store, d.Name(), d.Float())
	}
	w := &Weights{model: m, device: d, store: store, account: account, layers: layers, vectors: map[int]device.Slice{}}
	for l := layers.Lo; l < layers.Hi; l++ {
		for _, b := range m.LayerBuckets(l) {
			if _, ok := w.vectors[b]; ok {
				continue
			}
			v, err := d.Alloc(account, device.Parameters, store, m.Buckets()[b].Len)
			if err != nil {
				w.Release()
				return nil, fmt.Errorf("parameters of bucket %d (%s): %w", b, m.Buckets()[b].Name, err)
			}
			w.vectors[b] = v
		}
	}
	return w, nil
}

// Vector is the flat vector of a bucket. It panics when no layer of the range uses the bucket.
func (w *Weights) Vector(bucket int) device.Slice {
	v, ok := w.vectors[bucket]
	if !ok {
		panic(fmt.Sprintf("stage: layers %d..%d do not use bucket %d", w.layers.Lo, w.layers.Hi-1, bucket))
	}
	return v
}

// Release gives the memory back.
func (w *Weights) Release() {
	for _, v := range w.vectors {
		v.Release()
	}
	clear(w.vectors)
}

// params are the views of the parameters of a segment.
func (w *Weights) params(places []model.Place) []device.Slice {
	out := make([]device.Slice, len(places))
	for i, p := range places {
		out[i] = w.Vector(p.Bucket).Sub(p.Offset, p.Len)
	}
	return out
}
