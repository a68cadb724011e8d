package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
)

// Hash is the SHA-256, in hexadecimal, of the parameters in canonical order. For each parameter it
// covers the length of the name and the name, the number of dimensions and the dimensions (64-bit
// little-endian integers), and then the elements (little-endian float32). It does not depend on
// the layout.
//
// bucket returns the flat vector of a bucket; the slice is not used after the next call of bucket.
// Buckets are asked for in the order in which parameters need them: once each, unless a tied
// parameter stands between parameters of its layer.
func Hash(m *Model, bucket func(i int) []float32) string {
	type place struct{ bucket, offset int }
	where := map[string]place{}
	for i, b := range m.buckets {
		for j, p := range b.Params {
			where[p.Name] = place{i, b.Offsets[j]}
		}
	}
	h := sha256.New()
	var flat []float32
	held := -1
	for _, p := range m.params {
		w := where[p.Name]
		if w.bucket != held {
			held, flat = w.bucket, bucket(w.bucket)
			if b := m.buckets[held]; len(flat) != b.Len {
				panic(fmt.Sprintf("model: bucket %d (%s) has %d elements, given are %d", held, b.Name, b.Len, len(flat)))
			}
		}
		hashHeader(h, p)
		hashFloats(h, flat[w.offset:w.offset+p.Len()])
	}
	return hex.EncodeToString(h.Sum(nil))
}

func hashHeader(h hash.Hash, p Param) {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(p.Name)))
	b = append(b, p.Name...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(p.Shape)))
	for _, d := range p.Shape {
		b = binary.LittleEndian.AppendUint64(b, uint64(d))
	}
	h.Write(b)
}

func hashFloats(h hash.Hash, v []float32) {
	var block [4096]byte
	for len(v) > 0 {
		n := min(len(v), len(block)/4)
		for i, f := range v[:n] {
			binary.LittleEndian.PutUint32(block[4*i:], math.Float32bits(f))
		}
		h.Write(block[:4*n])
		v = v[n:]
	}
}
