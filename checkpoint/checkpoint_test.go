package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// tiny describes a small model.
func tiny(step int64) Meta {
	return Meta{
		Step:       step,
		Parameters: []Parameter{{"embed.tokens", []int{8, 3}}, {"block0/odd[1:2].gain", []int{7}}, {"head.bias", []int{1}}},
		Optimizer:  "adamw",
		Kinds:      []Kind{Weight, FirstMoment, SecondMoment},
		Facts:      []Fact{{"train.seed", "1"}},
		Job:        "model: {kind: gpt}\n",
		Tokenizer:  `{"version":1,"kind":"bytes"}`,
	}
}

// value is what the tests store: different for every step, kind, parameter and element, and not
// only plain numbers.
func value(step int64, kind Kind, name string, i int) float32 {
	if i%5 == 4 {
		return math.Float32frombits(0x7fc00000 | uint32(i)) // a NaN with a payload
	}
	return float32(step)*1000 + float32(len(kind))*100 + float32(len(name)) + float32(i)/64
}

func values(step int64, kind Kind, name string, lo, hi int) []float32 {
	out := make([]float32, hi-lo)
	for i := range out {
		out[i] = value(step, kind, name, lo+i)
	}
	return out
}

// pieces cut every kind of every parameter at the given elements.
func pieces(m Meta, cuts ...int) []Piece {
	var out []Piece
	for _, k := range m.Kinds {
		for _, p := range m.Parameters {
			lo := 0
			for _, hi := range append(slices.Clone(cuts), p.Len()) {
				if hi = min(hi, p.Len()); hi > lo {
					out = append(out, Piece{p.Name, k, lo, values(m.Step, k, p.Name, lo, hi)})
					lo = hi
				}
			}
		}
	}
	return out
}

// save writes a checkpoint in two files.
func save(dir string, m Meta) error {
	w, err := Create(dir, m)
	if err != nil {
		return err
	}
	ps := pieces(m, 3, 5)
	if err := w.Add(1, ps[:4]); err != nil {
		return err
	}
	if err := w.Add(0, ps[4:]); err != nil {
		return err
	}
	return w.Commit()
}

func mustSave(t testing.TB, dir string, steps ...int64) {
	t.Helper()
	for _, s := range steps {
		if err := save(dir, tiny(s)); err != nil {
			t.Fatal(err)
		}
	}
}

type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// verify reads all of a checkpoint.
func verify(t fataler, c *Checkpoint) {
	t.Helper()
	m := c.Meta()
	for _, p := range m.Parameters {
		for _, k := range m.Kinds {
			got := make([]float32, p.Len())
			if err := c.Read(p.Name, k, 0, p.Len(), got); err != nil {
				t.Fatal(err)
			}
			if !sameBits(got, values(m.Step, k, p.Name, 0, p.Len())) {
				t.Fatalf("%s of %s came back changed: %v", k, p.Name, got)
			}
		}
	}
	if err := c.AllRead(); err != nil {
		t.Fatal(err)
	}
}

// newest opens and verifies the newest checkpoint and returns its step.
func newest(t fataler, dir string) int64 {
	t.Helper()
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	verify(t, c)
	return c.Meta().Step
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestSaveAndOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "new")
	mustSave(t, dir, 50, 100)
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	verify(t, c)
	if !reflect.DeepEqual(c.Meta(), tiny(100)) || c.Path() != filepath.Join(dir, "step-00000100") || len(c.Skipped()) != 0 {
		t.Errorf("%+v in %s, skipped %v", c.Meta(), c.Path(), c.Skipped())
	}
	if want := []string{"step-00000050", "step-00000100"}; !reflect.DeepEqual(names(t, dir), want) {
		t.Errorf("on disk are %v, want %v", names(t, dir), want)
	}
	old, err := OpenStep(dir, 50)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	verify(t, old)
	if _, err := OpenStep(dir, 70); !errors.Is(err, ErrNone) {
		t.Errorf("step 70: error %v", err)
	}
	// The folder of a checkpoint may be named itself, and may have been copied elsewhere.
	if err := os.Rename(filepath.Join(dir, "step-00000050"), filepath.Join(dir, "best")); err != nil {
		t.Fatal(err)
	}
	if got := newest(t, filepath.Join(dir, "best")); got != 50 {
		t.Errorf("step %d, want 50", got)
	}
	// What is open stays readable when it is removed.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	verify(t, c)
}

// Any layout can be written and any other read, bit for bit.
func TestAnyCutsInAnyCutsOut(t *testing.T) {
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		m := tiny(rapid.Int64Range(0, 1<<40).Draw(t, "step"))
		m.Parameters = nil
		for i := range rapid.IntRange(1, 4).Draw(t, "parameters") {
			m.Parameters = append(m.Parameters, Parameter{fmt.Sprintf("p%d/x[%d:9]", i, i), rapid.SliceOfN(rapid.IntRange(1, 9), 1, 3).Draw(t, "shape")})
		}
		m.Kinds = m.Kinds[:rapid.IntRange(1, 3).Draw(t, "kinds")]
		w, err := Create(dir, m)
		if err != nil {
			t.Fatal(err)
		}
		// Cuts differ from parameter to parameter and kind to kind; pieces go to random files.
		files := make([][]Piece, 4)
		for _, p := range m.Parameters {
			for _, k := range m.Kinds {
				lo := 0
				for lo < p.Len() {
					hi := rapid.IntRange(lo, p.Len()).Draw(t, "cut")
					f := rapid.IntRange(0, len(files)-1).Draw(t, "file")
					files[f] = append(files[f], Piece{p.Name, k, lo, values(m.Step, k, p.Name, lo, hi)})
					lo = hi
				}
			}
		}
		var wg sync.WaitGroup
		for f := range files {
			wg.Go(func() {
				if err := w.Add(f, files[f]); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		c, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, p := range m.Parameters {
			for _, k := range m.Kinds {
				for lo := 0; lo < p.Len(); {
					if err := c.AllRead(); err == nil {
						t.Fatal("all is read before all was read")
					}
					hi := rapid.IntRange(lo, p.Len()).Draw(t, "read")
					got := make([]float32, hi-lo)
					if err := c.Read(p.Name, k, lo, hi, got); err != nil {
						t.Fatal(err)
					}
					if !sameBits(got, values(m.Step, k, p.Name, lo, hi)) {
						t.Fatalf("%s of %s [%d:%d] came back changed", k, p.Name, lo, hi)
					}
					lo = hi
				}
			}
		}
		if err := c.AllRead(); err != nil {
			t.Fatal(err)
		}
	})
}

// Pieces larger than a block, and blocks that end inside a piece.
func TestLargePieces(t *testing.T) {
	dir := t.TempDir()
	m := tiny(1)
	m.Parameters = []Parameter{{"large", []int{3, blockSize/4 + 1}}}
	m.Kinds = m.Kinds[:1]
	w, err := Create(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(7, pieces(m, 10)); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	newest(t, dir)
	// A byte that changes in the second block is found there.
	path := filepath.Join(dir, "step-00000001", "shard-00007.safetensors")
	flip(t, path, blockSize+5, 1)
	reports, err := Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s is damaged: its hash differs, in bytes [%d:%d]", path, blockSize, 2*blockSize)
	if len(reports) != 2 || reports[0].Err != nil || reports[1].String() != want {
		t.Errorf("reports %v, want %q", reports, want)
	}
}

// Equal states are equal files, whatever the order in which the pieces came.
func TestFilesDoNotDependOnTheOrderOfPieces(t *testing.T) {
	var texts [2][]byte
	for i := range texts {
		dir := t.TempDir()
		w, err := Create(dir, tiny(1))
		if err != nil {
			t.Fatal(err)
		}
		ps := pieces(tiny(1), 2)
		if i == 1 {
			slices.Reverse(ps)
		}
		if err := w.Add(0, ps); err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		if texts[i], err = os.ReadFile(filepath.Join(w.Path(), manifestName)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("the manifests differ")
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 1)
	c, err := Open(dir)
	must(t, err)
	defer c.Close()
	for _, x := range []struct {
		name   string
		kind   Kind
		lo, hi int
		n      int
		want   string
	}{
		{"none", Weight, 0, 1, 1, `there is no parameter "none"`},
		{"head.bias", "w", 0, 1, 1, `no kind "w"; legal is one of ["weight" "m" "v"]`},
		{"head.bias", Weight, 0, 2, 2, "legal is within [0:1]"},
		{"head.bias", Weight, -1, 1, 2, "legal is within [0:1]"},
		{"head.bias", Weight, 1, 0, 0, "legal is within [0:1]"},
		{"head.bias", Weight, 0, 1, 2, "into 2 elements"},
	} {
		err := c.Read(x.name, x.kind, x.lo, x.hi, make([]float32, x.n))
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: error %v", x, err)
		}
	}
}
