package data

import (
	"bytes"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func documents(texts ...string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, s := range texts {
			if !yield([]byte(s), nil) {
				return
			}
		}
	}
}

const sample = `package sort

// An implementation of Interface can be sorted by the routines in this package.
type Interface interface {
	// Len is the number of elements in the collection.
	Len() int
	Less(i, j int) bool
	Swap(i, j int)
}

func insertionSort(data Interface, a, b int) {
	for i := a + 1; i < b; i++ {
		for j := i; j > a && data.Less(j, j-1); j-- {
			data.Swap(j, j-1)
		}
	}
}
`

func train(t testing.TB, size int, texts ...string) *BPE {
	t.Helper()
	b, err := TrainBPE(documents(texts...), size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// slowTrain is the definition: count all pairs of all words from scratch before every merge.
func slowTrain(size int, text string) [][2]int32 {
	var words [][]int32
	for rest := []byte(text); len(rest) > 0; {
		n := nextWord(rest)
		words = append(words, Bytes.Encode(nil, rest[:n]))
		rest = rest[n:]
	}
	var merges [][2]int32
	for len(merges)+256 < size {
		count := map[pair]int{}
		for _, w := range words {
			for i := range len(w) - 1 {
				count[pair{w[i], w[i+1]}]++
			}
		}
		var best pair
		for p, c := range count {
			if c > count[best] || c == count[best] && p.less(best) {
				best = p
			}
		}
		if count[best] < 2 {
			return merges
		}
		token := int32(256 + len(merges))
		merges = append(merges, [2]int32{best.a, best.b})
		for i, w := range words {
			var out []int32
			for j := 0; j < len(w); j++ {
				if j+1 < len(w) && w[j] == best.a && w[j+1] == best.b {
					out = append(out, token)
					j++
				} else {
					out = append(out, w[j])
				}
			}
			words[i] = out
		}
	}
	return merges
}

// Overlapping runs ("aaaa") are where incremental counts go wrong; a small alphabet makes many of
// them. Counts of overlapping pairs are those that the definition counts.
func TestTrainEqualsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("aab \n(1")), 1, 300, -1).Draw(t, "text")
		want := slowTrain(300, text)
		if len(want) == 0 {
			return
		}
		b, err := TrainBPE(documents(text), 256+len(want))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(b.merges, want) {
			t.Fatalf("merges of %q are %v, want %v", text, b.merges, want)
		}
		if len(want) < 300-256 {
			if _, err := TrainBPE(documents(text), 257+len(want)); err == nil {
				t.Fatalf("a vocabulary larger than the text of %q allows", text)
			}
		}
	})
}

func TestTrainDoesNotDependOnTheOrderOfDocuments(t *testing.T) {
	lines := strings.SplitAfter(sample, "\n")
	a := train(t, 300, lines...)
	for i, j := 0, len(lines)-1; i < j; i, j = i+1, j-1 {
		lines[i], lines[j] = lines[j], lines[i]
	}
	if b := train(t, 300, lines...); !reflect.DeepEqual(a.merges, b.merges) {
		t.Error("another order of the documents gives other merges")
	}
}

func TestTrainRefuses(t *testing.T) {
	for _, size := range []int{256, maxVocabulary + 1} {
		if _, err := TrainBPE(documents(sample), size); err == nil {
			t.Errorf("a vocabulary of %d was made", size)
		}
	}
	broken := errors.New("broken")
	if _, err := TrainBPE(func(yield func([]byte, error) bool) { yield(nil, broken) }, 300); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}

func TestEncodeCompresses(t *testing.T) {
	b := train(t, 300, sample)
	tokens := b.Encode(nil, []byte(sample))
	if len(tokens)*3 > len(sample)*2 {
		t.Errorf("%d bytes are %d tokens", len(sample), len(tokens))
	}
	if b.Size() != 300 {
		t.Errorf("size %d, want 300", b.Size())
	}
}

func TestRoundTrip(t *testing.T) {
	bpe := train(t, 300, sample)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.StringOf(rapid.RuneFrom([]rune("int for\t\n ()=1\x00é"))), func(s string) []byte { return []byte(s) }),
			rapid.Map(rapid.IntRange(0, 300), func(n int) []byte { return bytes.Repeat([]byte(" "), n) }),
		).Draw(t, "text")
		roundTrip(t, Bytes, text)
		roundTrip(t, bpe, text)
	})
}

type fataler interface{ Fatalf(string, ...any) }

func roundTrip(t fataler, tok Tokenizer, text []byte) {
	tokens := tok.Encode(nil, text)
	got, err := tok.Decode(nil, tokens)
	if err != nil || !bytes.Equal(got, text) {
		t.Fatalf("%s: %q came back as %q, %v", tok.Kind(), text, got, err)
	}
	if once := encoder(tok)(nil, text); !reflect.DeepEqual(once, tokens) {
		t.Fatalf("%s: the encoder gives other tokens", tok.Kind())
	}
	for i, c := range tokens {
		if c < 0 || int(c) >= tok.Size() {
			t.Fatalf("%s: token %d is %d of %d", tok.Kind(), i, c, tok.Size())
		}
	}
}

func TestDecodeRefusesTokensOutOfRange(t *testing.T) {
	for _, tok := range []Tokenizer{Bytes, train(t, 300, sample)} {
		for _, bad := range []int32{-1, int32(tok.Size())} {
			_, err := tok.Decode(nil, []int32{1, bad})
			var r *RangeError
			if !errors.As(err, &r) || r.Index != 1 || r.Token != bad || r.Size != tok.Size() {
				t.Errorf("%s: token %d: error %v", tok.Kind(), bad, err)
			}
		}
	}
}

func TestWords(t *testing.T) {
	long := strings.Repeat("x", maxWord)
	for _, c := range []struct {
		text string
		want []string
	}{
		{"for i := 0; i < n; i++ {\n\t\tx12 += y[i]", []string{"for", " i", " :=", " 0", ";", " i", " <", " n", ";", " i", "++", " {", "\n\t\t", "x", "12", " +=", " y", "[", "i", "]"}},
		{"a   b \x00 c ", []string{"a", "  ", " b", " ", "\x00", " c", " "}},
		{"größe_1", []string{"größe_", "1"}},
		{long + "xy " + long, []string{long, "xy", " " + long[1:], "x"}},
		{strings.Repeat(" ", maxWord+2) + "a", []string{strings.Repeat(" ", maxWord), " ", " a"}},
	} {
		var got []string
		for rest := []byte(c.text); len(rest) > 0; {
			n := nextWord(rest)
			got = append(got, string(rest[:n]))
			rest = rest[n:]
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q is cut into %q, want %q", c.text, got, c.want)
		}
	}
}

func TestSaveAndOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "vocab.json")
	b := train(t, 310, sample)
	for range 2 { // the second time over the first
		if err := b.Save(path); err != nil {
			t.Fatal(err)
		}
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("%d files are left, want 1", len(names))
	}
	got, err := OpenTokenizer(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, b) {
		t.Error("the vocabulary came back changed")
	}
	if got, err := OpenTokenizer("bytes"); err != nil || got != Bytes {
		t.Errorf("bytes: %v, %v", got, err)
	}
	if got, err := ParseTokenizer(Bytes.Marshal()); err != nil || got != Bytes {
		t.Errorf("marshalled bytes: %v, %v", got, err)
	}
	if err := b.Save(filepath.Join(dir, "none", "vocab.json")); err == nil {
		t.Error("saved into a folder that does not exist")
	}
}

func TestParseTokenizerRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, "not a vocabulary"},
		{`[]`, "not a vocabulary"},
		{`{"version":1,"kind":"bpe","colour":3}`, "unknown field"},
		{`{"version":1,"kind":"bpe"} {}`, "something follows"},
		{`{"version":2,"kind":"bpe"}`, "version 2; legal is 1"},
		{`{"version":1,"kind":"words"}`, `legal is "bytes" and "bpe"`},
		{`{"version":1,"kind":"bytes","merges":[[97,98]]}`, "has no merges"},
		{`{"version":1,"kind":"bpe","merges":[[97,256]]}`, "merge 0 joins token 256"},
		{`{"version":1,"kind":"bpe","merges":[[-1,97]]}`, "merge 0 joins token -1"},
		{`{"version":1,"kind":"bpe","merges":[[0,97]]}`, "separator"},
		{`{"version":1,"kind":"bpe","merges":[[97,98],[97,98]]}`, "merge 1 joins tokens 97 and 98, which merge 0"},
		{`{"version":1,"kind":"bpe","merges":[[97,97],[256,256],[257,257],[258,258],[259,259],[260,260],[261,97]]}`, "65 bytes; legal is at most 64"},
	} {
		_, err := ParseTokenizer([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzParseTokenizer(f *testing.F) {
	f.Add([]byte(`{"version":1,"kind":"bytes"}`), []byte("text"))
	f.Add([]byte(`{"version":1,"kind":"bpe","merges":[[97,98],[256,256]]}`), []byte("ababab ab"))
	f.Add([]byte(`{"version":1,"kind":"bpe","merges":[[0,98]]}`), []byte{})
	f.Fuzz(func(t *testing.T, file, text []byte) {
		tok, err := ParseTokenizer(file)
		if err != nil {
			return
		}
		roundTrip(t, tok, text)
		again, err := ParseTokenizer(tok.Marshal())
		if err != nil || again.Size() != tok.Size() || !bytes.Equal(again.Marshal(), tok.Marshal()) {
			t.Fatalf("marshalled and parsed again: %v", err)
		}
	})
}

func BenchmarkEncodeBPE(b *testing.B) {
	tok := train(b, 300, sample)
	text := []byte(strings.Repeat(sample, 100))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.Encode(nil, text)
	}
}

func BenchmarkTrainBPE(b *testing.B) {
	text := strings.Repeat(sample, 100)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		train(b, 300, text)
	}
}
