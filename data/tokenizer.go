package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// Tokenizer turns bytes into tokens and back. Any bytes survive the round trip.
type Tokenizer interface {
	// Kind is "bytes" or "bpe".
	Kind() string
	// Size is the number of tokens; tokens are 0 to Size-1.
	Size() int
	// Encode appends the tokens of text to dst.
	Encode(dst []int32, text []byte) []int32
	// Decode appends the bytes of tokens to dst. A token that is out of range is an error.
	Decode(dst []byte, tokens []int32) ([]byte, error)
	// Marshal is the contents of a file from which ParseTokenizer makes the same tokenizer.
	Marshal() []byte
}

// Bytes is the vocabulary of the 256 bytes: every byte is a token.
var Bytes Tokenizer = byteTokenizer{}

type byteTokenizer struct{}

func (byteTokenizer) Kind() string { return "bytes" }
func (byteTokenizer) Size() int    { return 256 }

func (byteTokenizer) Encode(dst []int32, text []byte) []int32 {
	for _, b := range text {
		dst = append(dst, int32(b))
	}
	return dst
}

func (byteTokenizer) Decode(dst []byte, tokens []int32) ([]byte, error) {
	for i, t := range tokens {
		if t < 0 || t > 255 {
			return dst, &RangeError{Index: i, Token: t, Size: 256}
		}
		dst = append(dst, byte(t))
	}
	return dst, nil
}

func (byteTokenizer) Marshal() []byte { return marshal(tokenizerFile{Version: version, Kind: "bytes"}) }

// RangeError is the error of a token that is not in the vocabulary.
type RangeError struct {
	Index int
	Token int32
	Size  int
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("token %d (number %d) is not in the vocabulary; legal is 0 to %d", e.Token, e.Index, e.Size-1)
}

// version is that of the file and of the rules by which text is cut into words.
const version = 1

// tokenizerFile is the JSON form of a tokenizer. Merge i joins two tokens to token 256+i.
type tokenizerFile struct {
	Version int        `json:"version"`
	Kind    string     `json:"kind"`
	Merges  [][2]int32 `json:"merges,omitempty"`
}

func marshal(f tokenizerFile) []byte {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // integers and a plain string
	}
	return append(text, '\n')
}

// maxTokenizerBytes is more than a vocabulary of maxVocabulary takes.
const maxTokenizerBytes = 32 << 20

// OpenTokenizer makes the tokenizer that vocab names: "bytes", or the path of a saved vocabulary.
func OpenTokenizer(vocab string) (Tokenizer, error) {
	switch vocab {
	case "":
		return nil, fmt.Errorf("model.vocab is empty; legal is \"bytes\" or the path of a saved vocabulary")
	case "bytes":
		return Bytes, nil
	}
	path, err := expand("model.vocab", vocab)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		err = e.Err // the path is known
	}
	if err != nil {
		return nil, fmt.Errorf("model.vocab %q: %w; legal is \"bytes\" or the path of a saved vocabulary", vocab, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTokenizerBytes+1))
	if err != nil {
		return nil, fmt.Errorf("model.vocab %q: %w", vocab, err)
	}
	t, err := ParseTokenizer(text)
	if err != nil {
		return nil, fmt.Errorf("model.vocab %q: %w", vocab, err)
	}
	return t, nil
}

// ParseTokenizer makes a tokenizer from what Marshal or BPE.Save wrote.
func ParseTokenizer(text []byte) (Tokenizer, error) {
	if len(text) > maxTokenizerBytes {
		return nil, fmt.Errorf("a vocabulary of more than %d bytes", maxTokenizerBytes)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var f tokenizerFile
	if err := d.Decode(&f); err != nil {
		at := d.InputOffset()
		if e := (*json.SyntaxError)(nil); errors.As(err, &e) {
			at = e.Offset
		}
		return nil, fmt.Errorf("not a vocabulary: it is no JSON of one at byte %d: %s", at, strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("not a vocabulary: something follows the JSON object at byte %d", d.InputOffset())
	}
	if f.Version != version {
		return nil, fmt.Errorf("a vocabulary of version %d; legal is %d", f.Version, version)
	}
	switch f.Kind {
	case "bytes":
		if len(f.Merges) > 0 {
			return nil, fmt.Errorf("a vocabulary of bytes has no merges, this one has %d", len(f.Merges))
		}
		return Bytes, nil
	case "bpe":
		return newBPE(f.Merges)
	}
	return nil, fmt.Errorf("a vocabulary of the kind %q; legal is \"bytes\" and \"bpe\"", f.Kind)
}
