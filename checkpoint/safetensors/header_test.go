package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// file is a file with a header of the given text and data bytes behind it.
func file(text string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(b, text...), make([]byte, data)...)
}

func TestRoundTrip(t *testing.T) {
	types := []DType{F32, F64, "U8", "BF16"}
	rapid.Check(t, func(t *rapid.T) {
		var h Header
		names := rapid.SliceOfNDistinct(rapid.String(), 0, 6, func(s string) string { return s }).Draw(t, "names")
		for _, name := range names {
			if name == metadataKey {
				continue
			}
			h.Tensors = append(h.Tensors, Tensor{Name: name, DType: rapid.SampledFrom(types).Draw(t, "type"), Shape: rapid.SliceOfN(rapid.IntRange(0, 5), 0, 3).Draw(t, "shape")})
		}
		if rapid.Bool().Draw(t, "metadata") {
			h.Metadata = map[string]string{"format": "pt", "\"<": rapid.String().Draw(t, "value")}
		}
		if err := h.Place(); err != nil {
			t.Fatal(err)
		}
		head, err := h.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if len(head)%8 != 0 {
			t.Fatalf("the tensors begin at byte %d", len(head))
		}
		size := int64(len(head))
		if n := len(h.Tensors); n > 0 {
			size += h.Tensors[n-1].End
		}
		got, start, err := Read(bytes.NewReader(head), size)
		if err != nil {
			t.Fatal(err)
		}
		if start != int64(len(head)) || len(got.Tensors) != len(h.Tensors) || !reflect.DeepEqual(got.Metadata, h.Metadata) {
			t.Fatalf("%+v came back as %+v", h, got)
		}
		for i := range h.Tensors {
			if fmt.Sprint(got.Tensors[i]) != fmt.Sprint(h.Tensors[i]) {
				t.Fatalf("%+v came back as %+v", h.Tensors[i], got.Tensors[i])
			}
		}
	})
}

// The bytes of a small file, written out by hand from the description of the format.
func TestReadsTheFormat(t *testing.T) {
	f := file(`{"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"__metadata__":{"format":"pt"},"a":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]},"s":{"data_offsets":[12,20],"shape":[],"dtype":"I64"}}   `, 20)
	h, start, err := Read(bytes.NewReader(f), int64(len(f)))
	if err != nil {
		t.Fatal(err)
	}
	want := &Header{Metadata: map[string]string{"format": "pt"}, Tensors: []Tensor{
		{"a", "F16", []int{1, 2}, 0, 4}, {"b", F32, []int{2}, 4, 12}, {"s", "I64", []int{}, 12, 20}}}
	if !reflect.DeepEqual(h, want) || start != int64(len(f)-20) {
		t.Errorf("%+v at %d, want %+v", h, start, want)
	}
}

func TestReadRefuses(t *testing.T) {
	const a = `"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`
	for _, c := range []struct {
		name, text string
		data       int
		want       string
	}{
		{"empty", ``, 0, "does not begin with {"},
		{"blank first", ` {}`, 0, "does not begin with {"},
		{"array", `[]`, 0, "does not begin with {"},
		{"cut", `{` + a, 8, "unexpected"},
		{"more", `{} {}`, 0, "something follows"},
		{"newline behind", "{}\n x", 0, "something follows"},
		{"utf-8", "{\"\xff\":1}", 0, "not UTF-8"},
		{"twice", `{` + a + `,` + a + `}`, 8, `the key "a" comes twice`},
		{"field twice", `{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8, `the key "dtype" comes twice`},
		{"case", `{"a":{"DTYPE":"F32","shape":[2],"data_offsets":[0,8]}}`, 8, `unknown field "DTYPE"`},
		{"missing", `{"a":{"dtype":"F32","data_offsets":[0,8]}}`, 8, "needs dtype, shape"},
		{"offsets", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4,8]}}`, 8, "two data_offsets"},
		{"type", `{"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}}`, 8, "unknown type"},
		{"null", `{"a":null}`, 8, "where { is due"},
		{"negative", `{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8, "0 and more"},
		{"float", `{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}`, 8, "0 and more"},
		{"overflow", `{"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}}`, 0, "impossible shape"},
		{"overflow of one", `{"a":{"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,8]}}`, 8, "impossible shape"},
		{"beyond 63 bits", `{"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]}}`, 8, "0 and more"},
		{"size", `{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8, "takes 12 bytes"},
		{"gap", `{` + a + `,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}`, 16, "must begin at 8"},
		{"overlap", `{` + a + `,"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8, "must begin at 8"},
		{"reversed", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8, "must begin at 0"},
		{"short", `{` + a + `}`, 7, "the tensors end at byte 8, the file at 7"},
		{"long", `{` + a + `}`, 9, "the tensors end at byte 8, the file at 9"},
		{"metadata", `{"__metadata__":{"a":1}}`, 0, "where a string is due"},
	} {
		f := file(c.text, c.data)
		_, _, err := Read(bytes.NewReader(f), int64(len(f)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	for n := range 8 {
		if _, _, err := Read(bytes.NewReader(make([]byte, n)), int64(n)); err == nil {
			t.Errorf("a file of %d bytes was read", n)
		}
	}
	for _, n := range []uint64{3, MaxHeader + 1, 1 << 63, math.MaxUint64} {
		f := append(binary.LittleEndian.AppendUint64(nil, n), "{}"...)
		if _, _, err := Read(bytes.NewReader(f), int64(len(f))); err == nil || !strings.Contains(err.Error(), "legal is at most 2") {
			t.Errorf("a header of %d bytes: %v", n, err)
		}
	}
}

func TestMarshalRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		tensors []Tensor
	}{
		{"twice", []Tensor{{Name: "a", DType: F32}, {Name: "a", DType: F32}}},
		{"metadata", []Tensor{{Name: metadataKey, DType: F32}}},
		{"negative", []Tensor{{Name: "a", DType: F32, Shape: []int{-1}}}},
		{"type", []Tensor{{Name: "a", DType: "F31"}}},
		{"beyond", []Tensor{{Name: "a", DType: F32, Shape: []int{1 << 60}}, {Name: "b", DType: F32, Shape: []int{1 << 60}}}},
	} {
		h := Header{Tensors: c.tensors}
		err := h.Place()
		if err == nil {
			_, err = h.Marshal()
		}
		if err == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
	h := Header{Tensors: []Tensor{{Name: "a", DType: F32, Shape: []int{2}}}}
	if _, err := h.Marshal(); err == nil {
		t.Error("tensors without a place were marshalled")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}}`, 8))
	f.Add(file(`{}`, 0))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\x7f{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, start, err := Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		total := int64(0)
		for _, x := range h.Tensors {
			total += x.End - x.Begin
		}
		if start+total != int64(len(b)) {
			t.Fatalf("the tensors take %d bytes behind %d, the file has %d", total, start, len(b))
		}
		head, err := h.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := Read(bytes.NewReader(head), int64(len(head))+total)
		if err != nil || !reflect.DeepEqual(again.Tensors, h.Tensors) {
			t.Fatalf("%+v came back as %+v, %v", h, again, err)
		}
	})
}
