package data

import (
	"container/heap"
	"fmt"
	"iter"
	"sort"
)

// TrainTokenizer learns a byte-pair vocabulary of size tokens from the training part of a text.
func TrainTokenizer(o Options, size int) (*BPE, error) {
	text, err := OpenText(o)
	if err != nil {
		return nil, err
	}
	return TrainBPE(func(yield func([]byte, error) bool) {
		for d, err := range text.Documents() {
			if !yield(d.Train, err) {
				return
			}
		}
	}, size)
}

// CheckVocabularySize says whether a vocabulary of size tokens can be trained.
func CheckVocabularySize(size int) error {
	if size < 257 || size > maxVocabulary {
		return fmt.Errorf("a vocabulary of %d tokens; legal is 257 to %d", size, maxVocabulary)
	}
	return nil
}

// TrainBPE learns a vocabulary of size tokens: again and again the pair of tokens that stands most
// often side by side inside words becomes a token; among equals it is the pair with the smallest
// numbers. The result depends on the bytes of the documents alone, and not on their order.
func TrainBPE(documents iter.Seq2[[]byte, error], size int) (*BPE, error) {
	if err := CheckVocabularySize(size); err != nil {
		return nil, err
	}
	counts := map[string]*int64{}
	for text, err := range documents {
		if err != nil {
			return nil, err
		}
		for len(text) > 0 {
			n := nextWord(text)
			if c := counts[string(text[:n])]; c != nil {
				*c++
			} else {
				one := int64(1)
				counts[string(text[:n])] = &one
			}
			text = text[n:]
		}
	}
	t := newTrainer(counts)
	for len(t.merges)+256 < size {
		if !t.step() {
			return nil, fmt.Errorf("a vocabulary of %d tokens, but the text has no pair left that repeats after %d; legal with this text is up to %d", size, len(t.merges)+256, len(t.merges)+256)
		}
	}
	return newBPE(t.merges)
}

// trainer keeps, between merges, how often every pair stands in the text.
// Invariant: count[p] = sum over words w of w.count * (occurrences of p in w.tokens).
type trainer struct {
	words  []word
	count  map[pair]int64
	where  map[pair][]int32 // the words that may contain a pair: all that do, and some that did
	queue  candidates       // has an entry with at least its present count for every pair
	merges [][2]int32
}

type word struct {
	tokens []int32
	count  int64
}

func newTrainer(counts map[string]*int64) *trainer {
	t := &trainer{count: map[pair]int64{}, where: map[pair][]int32{}}
	names := make([]string, 0, len(counts))
	for name := range counts {
		if len(name) > 1 {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for i, name := range names {
		w := word{tokens: make([]int32, len(name)), count: *counts[name]}
		for j := range len(name) {
			w.tokens[j] = int32(name[j])
		}
		t.words = append(t.words, w)
		for j := range len(name) - 1 {
			t.add(pair{w.tokens[j], w.tokens[j+1]}, int32(i), w.count)
		}
	}
	for p, c := range t.count {
		t.queue = append(t.queue, candidate{p, c})
	}
	heap.Init(&t.queue)
	return t
}

func (t *trainer) add(p pair, w int32, count int64) {
	t.count[p] += count
	if at := t.where[p]; len(at) == 0 || at[len(at)-1] != w {
		t.where[p] = append(at, w)
	}
}

// step makes one merge. It reports false when no pair stands in the text twice.
func (t *trainer) step() bool {
	p, ok := t.best()
	if !ok {
		return false
	}
	token := int32(256 + len(t.merges))
	t.merges = append(t.merges, [2]int32{p.a, p.b})
	grown := map[pair]bool{}
	for _, i := range t.where[p] {
		w := &t.words[i]
		n := replace(w.tokens, p, token, func(was, is pair) {
			t.count[was] -= w.count
			t.add(is, i, w.count)
			grown[is] = true
		})
		w.tokens = w.tokens[:n]
	}
	delete(t.count, p)
	delete(t.where, p)
	for q := range grown {
		if c := t.count[q]; c > 0 {
			heap.Push(&t.queue, candidate{q, c})
		}
	}
	return true
}

// best is the pair with the highest count. Entries of the queue whose pair has become rarer are
// put back with their present count.
func (t *trainer) best() (pair, bool) {
	for len(t.queue) > 0 {
		top := heap.Pop(&t.queue).(candidate)
		now := t.count[top.pair]
		switch {
		case now < 2:
			delete(t.count, top.pair)
			delete(t.where, top.pair)
		case now < top.count:
			heap.Push(&t.queue, candidate{top.pair, now})
		default:
			return top.pair, true
		}
	}
	return pair{}, false
}

type candidate struct {
	pair  pair
	count int64
}

// candidates is a heap: highest count first, then smallest pair.
type candidates []candidate

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	if c[i].count != c[j].count {
		return c[i].count > c[j].count
	}
	return c[i].pair.less(c[j].pair)
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)   { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	last := len(*c) - 1
	x := (*c)[last]
	*c = (*c)[:last]
	return x
}
