package data

import (
	"math"
	"slices"
)

// column is a sequence of tokens in the narrowest integers that hold them.
type column interface {
	len() int64
	append(tokens []int32)
	copy(dst []int32, offset int64)
}

// newColumn makes a column for tokens below vocabulary, with room for about as many as bytes of
// text give.
func newColumn(vocabulary int, bytes int64) column {
	// Larger vocabularies give about three bytes to a token of text; where they do not, the column
	// grows.
	room := bytes / 2
	switch {
	case vocabulary <= math.MaxUint8+1:
		return &columnOf[uint8]{make([]uint8, 0, bytes)}
	case vocabulary <= math.MaxUint16+1:
		return &columnOf[uint16]{make([]uint16, 0, room)}
	}
	return &columnOf[uint32]{make([]uint32, 0, room)}
}

type columnOf[T uint8 | uint16 | uint32] struct{ tokens []T }

func (c *columnOf[T]) len() int64 { return int64(len(c.tokens)) }

func (c *columnOf[T]) append(tokens []int32) {
	n := len(c.tokens)
	c.tokens = slices.Grow(c.tokens, len(tokens))[:n+len(tokens)]
	for i, t := range tokens {
		c.tokens[n+i] = T(t)
	}
}

func (c *columnOf[T]) copy(dst []int32, offset int64) {
	for i, t := range c.tokens[offset:][:len(dst)] {
		dst[i] = int32(t)
	}
}
