package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// parser walks the tokens of a JSON text. The decoder of encoding/json is too lenient for a file
// format: it takes fields twice, in any case of letters, and repairs broken characters.
type parser struct{ *json.Decoder }

func parse(text []byte) (*Header, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, errors.New("safetensors: the header does not begin with {")
	}
	if !utf8.Valid(text) {
		return nil, errors.New("safetensors: the header is not UTF-8")
	}
	p := parser{json.NewDecoder(bytes.NewReader(bytes.TrimRight(text, " ")))}
	p.UseNumber()
	h := &Header{}
	err := p.object(func(key string) error {
		if key == metadataKey {
			h.Metadata = map[string]string{}
			return p.object(func(key string) (err error) {
				h.Metadata[key], err = p.text()
				return err
			})
		}
		t, err := p.tensor(key)
		h.Tensors = append(h.Tensors, t)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("safetensors: header, byte %d: %w", p.InputOffset(), err)
	}
	if _, err := p.Token(); err != io.EOF {
		return nil, fmt.Errorf("safetensors: header, byte %d: something follows the object", p.InputOffset())
	}
	return h, nil
}

func (p parser) tensor(name string) (Tensor, error) {
	t := Tensor{Name: name, Shape: []int{}}
	var offsets []int64
	fields := 0
	err := p.object(func(key string) error {
		fields++
		switch key {
		case "dtype":
			s, err := p.text()
			t.DType = DType(s)
			return err
		case "shape":
			return p.numbers(func(n int64) error {
				if int64(int(n)) != n {
					return fmt.Errorf("the dimension %d is too large", n)
				}
				t.Shape = append(t.Shape, int(n))
				return nil
			})
		case "data_offsets":
			return p.numbers(func(n int64) error {
				offsets = append(offsets, n)
				return nil
			})
		}
		return fmt.Errorf("tensor %q has the unknown field %q", name, key)
	})
	if err != nil {
		return t, err
	}
	if fields != 3 || len(offsets) != 2 {
		return t, fmt.Errorf("tensor %q needs dtype, shape and two data_offsets", name)
	}
	t.Begin, t.End = offsets[0], offsets[1]
	return t, nil
}

// object reads an object and calls field, which reads the value, for each key. A key that comes
// twice is an error.
func (p parser) object(field func(key string) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.More() {
		key, err := p.text()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("the key %q comes twice", key)
		}
		seen[key] = true
		if err := field(key); err != nil {
			return err
		}
	}
	return p.delim('}')
}

// numbers reads an array of integers of 0 and more.
func (p parser) numbers(each func(int64) error) error {
	if err := p.delim('['); err != nil {
		return err
	}
	for p.More() {
		tok, err := p.Token()
		if err != nil {
			return err
		}
		n, ok := tok.(json.Number)
		if !ok {
			return fmt.Errorf("%v where an integer is due", tok)
		}
		v, err := strconv.ParseUint(n.String(), 10, 63)
		if err != nil {
			return fmt.Errorf("%v where an integer of 0 and more is due", n)
		}
		if err := each(int64(v)); err != nil {
			return err
		}
	}
	return p.delim(']')
}

func (p parser) text() (string, error) {
	tok, err := p.Token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", fmt.Errorf("%v where a string is due", tok)
	}
	return s, nil
}

func (p parser) delim(want json.Delim) error {
	tok, err := p.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if tok != want {
		return fmt.Errorf("%v where %v is due", tok, want)
	}
	return nil
}
