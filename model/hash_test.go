package model_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/troupe-train/troupe/model"
)

// TestHashBytes writes out by hand what is hashed.
func TestHashBytes(t *testing.T) {
	m, err := model.New("fake", 1, 1, []model.Layer{layer("a", segment(nil, ports(loss), param("w", 1, 2), param("b", 1)))})
	if err != nil {
		t.Fatal(err)
	}
	bytes := []byte{
		1, 0, 0, 0, 0, 0, 0, 0, 'w', 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0, // 1, -2.5
		1, 0, 0, 0, 0, 0, 0, 0, 'b', 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0x3e, // 0.125
	}
	sum := sha256.Sum256(bytes)
	if got := model.Hash(m, func(int) []float32 { return []float32{1, -2.5, 0.125} }); got != hex.EncodeToString(sum[:]) {
		t.Errorf("hash %s, want %x", got, sum)
	}
}

func TestHashOrderAndContent(t *testing.T) {
	m := tied(t)
	flat := make([][]float32, len(m.Buckets()))
	for i, b := range m.Buckets() {
		flat[i] = make([]float32, b.Len)
	}
	var order []int
	hash := func() string {
		return model.Hash(m, func(i int) []float32 { order = append(order, i); return flat[i] })
	}
	zero := hash()
	// a1 | t | a2 | b1 | c1 c2: canonical order is that of the parameters, so bucket 0 is asked for twice.
	if want := []int{0, 1, 0, 2, 3}; !slices.Equal(order, want) {
		t.Errorf("buckets asked for: %v, want %v", order, want)
	}
	seen := map[string]bool{zero: true}
	for i := range flat {
		for j := range flat[i] {
			flat[i][j] = 1
			if h := hash(); seen[h] {
				t.Errorf("element %d of bucket %d: a hash that another content has", j, i)
			} else {
				seen[h] = true
			}
			flat[i][j] = 0
		}
	}
	if hash() != zero {
		t.Error("equal content, other hash")
	}
}
