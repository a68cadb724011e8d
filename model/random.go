package model

import "github.com/troupe-train/troupe/device/random"

// The uses of random numbers in this package. They are the first part of a key, so that no two uses share numbers.
const (
	useInit    = 1
	useDropout = 2
)

// Sites of dropout within a layer.
const (
	siteEmbedding = iota
	siteAttention
	siteMLP
)

// DropoutKey is the key of the masks of a site of a layer in a step.
func DropoutKey(seed uint64, step int64, layer int, site uint64) uint64 {
	return random.Key(useDropout, seed, uint64(step), uint64(layer), site)
}

// Initialize writes the elements [from, from+len(dst)) of a fresh parameter. They are a pure
// function of seed, p.Name, p.Init and the index of the element.
func Initialize(p Param, seed uint64, dst []float32, from int) {
	switch p.Init.Kind {
	case Zeros:
		clear(dst)
	case Ones:
		for i := range dst {
			dst[i] = 1
		}
	case Normal:
		key := random.Key(useInit, seed, random.String(p.Name))
		for i := range dst {
			dst[i] = float32(p.Init.Std * random.Normal(key, uint64(from+i)))
		}
	}
}
