// Package safetensors reads and writes the header of a safetensors file: which tensors the file
// holds, and where.
//
// A file is the length of the header (8 bytes, little-endian), the header (a JSON object), and
// the bytes of the tensors one after the other, little-endian and row-major.
//
//	h := safetensors.Header{Tensors: []safetensors.Tensor{{Name: "x", DType: safetensors.F32, Shape: []int{2, 3}}}}
//	h.Place()                 // gives each tensor its place, in order
//	head, err := h.Marshal()  // write it, and behind it the 24 bytes of x
//
//	h, start, err := safetensors.Read(file, size) // the bytes of x are [start+x.Begin, start+x.End)
//
// Read is strict. Names are unique, sizes agree with shapes, the tensors fill the file without gap
// or overlap, and there is nothing that it does not know.
package safetensors
