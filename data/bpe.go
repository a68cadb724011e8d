package data

import (
	"fmt"
	"os"
	"path/filepath"
)

// BPE is a vocabulary of byte pairs (Sennrich et al. 2016, on bytes): tokens 0 to 255 are the
// bytes, and merge i makes token 256+i of two tokens before it. Inside a word, merges apply in
// their order. It is immutable and safe for concurrent use.
type BPE struct {
	merges [][2]int32
	ranks  map[pair]int32 // the token that a pair becomes
	tokens [][]byte       // the bytes of every token
}

// maxVocabulary is the most tokens of a vocabulary.
const maxVocabulary = 1 << 20

type pair struct{ a, b int32 }

func (p pair) less(q pair) bool { return p.a < q.a || p.a == q.a && p.b < q.b }

// newBPE checks that every merge joins two tokens before it, that no pair is merged twice, and that
// every token can occur: the separator is never merged and no token is longer than a word.
func newBPE(merges [][2]int32) (*BPE, error) {
	if len(merges) > maxVocabulary-256 {
		return nil, fmt.Errorf("a vocabulary of %d tokens; legal is at most %d", len(merges)+256, maxVocabulary)
	}
	b := &BPE{merges: merges, ranks: make(map[pair]int32, len(merges)), tokens: make([][]byte, 256, 256+len(merges))}
	for i := range 256 {
		b.tokens[i] = []byte{byte(i)}
	}
	for i, m := range merges {
		token := int32(256 + i)
		for _, t := range m {
			if t < 0 || t >= token {
				return nil, fmt.Errorf("merge %d joins token %d, which is not before its own, %d", i, t, token)
			}
			if t == int32(Separator) {
				return nil, fmt.Errorf("merge %d joins the separator, token %d", i, t)
			}
		}
		p := pair{m[0], m[1]}
		if first, ok := b.ranks[p]; ok {
			return nil, fmt.Errorf("merge %d joins tokens %d and %d, which merge %d has joined", i, p.a, p.b, first-256)
		}
		n := len(b.tokens[p.a]) + len(b.tokens[p.b])
		if n > maxWord {
			return nil, fmt.Errorf("merge %d makes a token of %d bytes; legal is at most %d", i, n, maxWord)
		}
		b.ranks[p] = token
		b.tokens = append(b.tokens, append(append(make([]byte, 0, n), b.tokens[p.a]...), b.tokens[p.b]...))
	}
	return b, nil
}

func (b *BPE) Kind() string { return "bpe" }
func (b *BPE) Size() int    { return len(b.tokens) }

// Encode appends the tokens of text to dst.
func (b *BPE) Encode(dst []int32, text []byte) []int32 {
	return b.encode(dst, text, map[string][]int32{})
}

// Decode appends the bytes of tokens to dst.
func (b *BPE) Decode(dst []byte, tokens []int32) ([]byte, error) {
	for i, t := range tokens {
		if t < 0 || int(t) >= len(b.tokens) {
			return dst, &RangeError{Index: i, Token: t, Size: len(b.tokens)}
		}
		dst = append(dst, b.tokens[t]...)
	}
	return dst, nil
}

func (b *BPE) Marshal() []byte {
	return marshal(tokenizerFile{Version: version, Kind: "bpe", Merges: b.merges})
}

// Save writes the vocabulary to path: all of it or, on an error, nothing.
func (b *BPE) Save(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("save vocabulary: %w", err)
	}
	_, err = f.Write(b.Marshal())
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("save vocabulary: %w", err)
	}
	return nil
}

// cachedWords bounds the memory of a cache of encoded words.
const cachedWords = 1 << 18

// encoder is t.Encode with what can be remembered from one document to the next. The function is
// not safe for concurrent use.
func encoder(t Tokenizer) func(dst []int32, text []byte) []int32 {
	if b, ok := t.(*BPE); ok {
		cache := map[string][]int32{}
		return func(dst []int32, text []byte) []int32 { return b.encode(dst, text, cache) }
	}
	return t.Encode
}

func (b *BPE) encode(dst []int32, text []byte, cache map[string][]int32) []int32 {
	for len(text) > 0 {
		n := nextWord(text)
		word := text[:n]
		text = text[n:]
		if tokens, ok := cache[string(word)]; ok {
			dst = append(dst, tokens...)
			continue
		}
		start := len(dst)
		for _, c := range word {
			dst = append(dst, int32(c))
		}
		dst = dst[:start+b.merge(dst[start:])]
		if len(cache) < cachedWords {
			cache[string(word)] = append([]int32(nil), dst[start:]...)
		}
	}
	return dst
}

// merge applies the merges to the bytes of a word, in place, and returns how many tokens are left.
func (b *BPE) merge(word []int32) int {
	n := len(word)
	for n > 1 {
		first := int32(len(b.tokens))
		for i := range n - 1 {
			if t, ok := b.ranks[pair{word[i], word[i+1]}]; ok {
				first = min(first, t)
			}
		}
		if int(first) == len(b.tokens) {
			break
		}
		m := b.merges[first-256]
		n = replace(word[:n], pair{m[0], m[1]}, first, nil)
	}
	return n
}

// replace puts token in the place of every p in word, from left to right, and returns the new
// length. change, if not nil, is told of every neighbour that a token gets: the pair that was there
// and the one that is.
func replace(word []int32, p pair, token int32, change func(was, is pair)) int {
	n := 0
	for i := 0; i < len(word); i++ {
		if i+1 == len(word) || word[i] != p.a || word[i+1] != p.b {
			word[n] = word[i]
			n++
			continue
		}
		if change != nil {
			if n > 0 {
				change(pair{word[n-1], p.a}, pair{word[n-1], token})
			}
			if i+2 < len(word) {
				change(pair{p.b, word[i+2]}, pair{token, word[i+2]})
			}
		}
		word[n] = token
		n++
		i++
	}
	return n
}
