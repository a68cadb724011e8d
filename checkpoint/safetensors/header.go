package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/bits"
	"sort"
)

// DType is the type of a tensor's elements, by its name in the header.
type DType string

const (
	F32 DType = "F32"
	F64 DType = "F64"
)

// sizes are the bytes of an element.
var sizes = map[DType]int64{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1,
	"I16": 2, "U16": 2, "F16": 2, "BF16": 2,
	"I32": 4, "U32": 4, F32: 4,
	"I64": 8, "U64": 8, F64: 8,
}

// Tensor is one entry of a header. Its bytes are [Begin, End), counted from the end of the header.
type Tensor struct {
	Name       string
	DType      DType
	Shape      []int
	Begin, End int64
}

// Bytes is what the tensor takes by its type and shape. The error says why there is no such tensor.
func (t *Tensor) Bytes() (int64, error) {
	size, ok := sizes[t.DType]
	if !ok {
		return 0, fmt.Errorf("safetensors: tensor %q has the unknown type %q", t.Name, t.DType)
	}
	n := uint64(size)
	for _, d := range t.Shape {
		hi, lo := bits.Mul64(n, uint64(max(d, 0)))
		if d < 0 || hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Errorf("safetensors: tensor %q of %s has the impossible shape %v", t.Name, t.DType, t.Shape)
		}
		n = lo
	}
	return int64(n), nil
}

// Header lists the tensors of a file, in the order of their places.
type Header struct {
	Tensors  []Tensor
	Metadata map[string]string
}

// MaxHeader is the most bytes of a header that the format allows.
const MaxHeader = 100_000_000

// metadataKey is where the metadata is; no tensor has this name.
const metadataKey = "__metadata__"

// Place puts the tensors one behind the other, in their order.
func (h *Header) Place() error {
	at := int64(0)
	for i := range h.Tensors {
		t := &h.Tensors[i]
		n, err := t.Bytes()
		if err != nil {
			return err
		}
		if n > math.MaxInt64-at {
			return fmt.Errorf("safetensors: tensor %q ends beyond any file", t.Name)
		}
		t.Begin, t.End = at, at+n
		at += n
	}
	return nil
}

// Marshal is what a file begins with: the length and the header, padded with blanks to a multiple
// of 8 bytes.
func (h *Header) Marshal() ([]byte, error) {
	size := int64(0)
	if n := len(h.Tensors); n > 0 {
		size = h.Tensors[n-1].End
	}
	if err := h.check(size); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	b.WriteByte('{')
	field := func(key string, value any) error {
		if b.Len() > 9 {
			b.WriteByte(',')
		}
		text, err := json.Marshal(key)
		if err != nil {
			return err
		}
		b.Write(text)
		b.WriteByte(':')
		if text, err = json.Marshal(value); err == nil {
			b.Write(text)
		}
		return err
	}
	if len(h.Metadata) > 0 {
		if err := field(metadataKey, h.Metadata); err != nil { // sorted by key
			return nil, err
		}
	}
	for _, t := range h.Tensors {
		shape := t.Shape
		if shape == nil {
			shape = []int{}
		}
		err := field(t.Name, struct {
			DType   DType    `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{t.DType, shape, [2]int64{t.Begin, t.End}})
		if err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	head := b.Bytes()
	if len(head)-8 > MaxHeader {
		return nil, fmt.Errorf("safetensors: a header of %d bytes for %d tensors; legal is at most %d", len(head)-8, len(h.Tensors), MaxHeader)
	}
	binary.LittleEndian.PutUint64(head, uint64(len(head)-8))
	return head, nil
}

// Read reads the header of a file of size bytes and returns where the bytes of the tensors start.
// It reads no more than the header.
func Read(r io.Reader, size int64) (*Header, int64, error) {
	var length [8]byte
	if size < 8 {
		return nil, 0, fmt.Errorf("safetensors: a file of %d bytes; legal is at least 8", size)
	}
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, 0, fmt.Errorf("safetensors: read the length of the header: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > MaxHeader || int64(n) > size-8 {
		return nil, 0, fmt.Errorf("safetensors: a header of %d bytes in a file of %d; legal is at most %d", n, size, min(MaxHeader, size-8))
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, 0, fmt.Errorf("safetensors: read the header: %w", err)
	}
	h, err := parse(text)
	if err != nil {
		return nil, 0, err
	}
	start := 8 + int64(n)
	if err := h.check(size - start); err != nil {
		return nil, 0, err
	}
	return h, start, nil
}

// check sorts the tensors by place and checks that they fill [0, size) exactly.
func (h *Header) check(size int64) error {
	sort.SliceStable(h.Tensors, func(i, j int) bool {
		a, b := &h.Tensors[i], &h.Tensors[j]
		return a.Begin < b.Begin || a.Begin == b.Begin && a.End < b.End
	})
	names := make(map[string]bool, len(h.Tensors))
	at := int64(0)
	for i := range h.Tensors {
		t := &h.Tensors[i]
		if t.Name == metadataKey || names[t.Name] {
			return fmt.Errorf("safetensors: the name %q is taken", t.Name)
		}
		names[t.Name] = true
		n, err := t.Bytes()
		if err != nil {
			return err
		}
		if t.Begin != at || t.End < t.Begin || t.End-t.Begin != n {
			return fmt.Errorf("safetensors: tensor %q of %s %v is at [%d:%d]; it takes %d bytes and must begin at %d", t.Name, t.DType, t.Shape, t.Begin, t.End, n, at)
		}
		at = t.End
	}
	if at != size {
		return fmt.Errorf("safetensors: the tensors end at byte %d, the file at %d", at, size)
	}
	return nil
}
