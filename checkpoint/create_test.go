package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCreateRefuses(t *testing.T) {
	for _, c := range []struct {
		change func(m *Meta)
		want   string
	}{
		{func(m *Meta) { m.Step = -1 }, "step -1; legal is 0 and more"},
		{func(m *Meta) { m.Parameters = nil }, "0 parameters of 3 kinds"},
		{func(m *Meta) { m.Kinds = nil }, "3 parameters of 0 kinds"},
		{func(m *Meta) { m.Parameters[1].Name = "head.bias" }, `"head.bias" [1] has an empty or taken name`},
		{func(m *Meta) { m.Parameters[1].Shape = []int{0} }, "impossible shape"},
		{func(m *Meta) { m.Parameters[1].Shape = []int{1 << 40, 1 << 40} }, "impossible shape"},
		{func(m *Meta) { m.Kinds[1] = "a/b" }, `the kind "a/b"`},
		{func(m *Meta) { m.Kinds[1] = Weight }, `the kind "weight"`},
		{func(m *Meta) { m.Job = "\xff" }, "not UTF-8"},
	} {
		dir := t.TempDir()
		m := tiny(1)
		c.change(&m)
		_, err := Create(dir, m)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
		if n := names(t, dir); len(n) > 0 {
			t.Errorf("%q: left are %v", c.want, n)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o644))
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if _, err := Create(dir, tiny(1)); err == nil || !strings.Contains(err.Error(), "not a ") {
			t.Errorf("%s: error %v", dir, err)
		}
	}
}

// Whatever is wrong with the pieces, nothing of the checkpoint is left and the older one is untouched.
func TestPiecesAreRefused(t *testing.T) {
	piece := func(name string, k Kind, lo, n int) Piece { return Piece{name, k, lo, make([]float32, n)} }
	whole := pieces(tiny(2))
	for _, c := range []struct {
		name  string
		files map[int][]Piece
		want  string
	}{
		{"nothing", nil, "elements [0:24] of weight of embed.tokens are missing"},
		{"one missing", map[int][]Piece{0: whole[1:]}, "elements [0:24] of weight of embed.tokens are missing"},
		{"gap at the end", map[int][]Piece{0: whole[1:], 1: {piece("embed.tokens", Weight, 0, 23)}}, "elements [23:24] of weight of embed.tokens are missing"},
		{"gap in the middle", map[int][]Piece{0: whole[1:], 1: {piece("embed.tokens", Weight, 0, 5)}, 2: {piece("embed.tokens", Weight, 7, 17)}}, "elements [5:7] of weight of embed.tokens are missing"},
		{"overlap", map[int][]Piece{0: whole, 1: {piece("embed.tokens", Weight, 3, 4)}}, "elements [3:7] of weight of embed.tokens are there twice"},
		{"twice", map[int][]Piece{0: whole, 1: whole[8:]}, "elements [0:1] of v of head.bias are there twice"},
		{"twice in a file", map[int][]Piece{0: append(whole[:9:9], whole[8])}, `the name "v/head.bias[0:1]" is taken`},
		{"unknown", map[int][]Piece{0: {piece("x", Weight, 0, 1)}}, `there is no parameter "x"`},
		{"kind", map[int][]Piece{0: {piece("head.bias", "w", 0, 1)}}, `there is no kind "w"`},
		{"too long", map[int][]Piece{0: {piece("head.bias", Weight, 0, 2)}}, "elements [0:2] of weight of head.bias; legal is within [0:1]"},
		{"negative", map[int][]Piece{0: {piece("head.bias", Weight, -1, 1)}}, "begins at element -1"},
		{"file", map[int][]Piece{-1: whole}, "file -1; legal is 0 to"},
	} {
		dir := t.TempDir()
		mustSave(t, dir, 1)
		w, err := Create(dir, tiny(2))
		must(t, err)
		for n, ps := range c.files {
			if err = w.Add(n, ps); err != nil {
				break
			}
		}
		if err == nil {
			err = w.Commit()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "save checkpoint of step 2 in "+dir) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		if again := w.Commit(); again == nil || w.Add(9, whole) == nil {
			t.Errorf("%s: the writer is used after its error", c.name)
		}
		if n := names(t, dir); len(n) != 1 || newest(t, dir) != 1 {
			t.Errorf("%s: on disk are %v", c.name, n)
		}
	}
}

func TestAddTheSameFileTwice(t *testing.T) {
	w, err := Create(t.TempDir(), tiny(1))
	must(t, err)
	must(t, w.Add(3, nil))
	if err := w.Add(3, nil); err == nil || !strings.Contains(err.Error(), "file 3 was written before") {
		t.Errorf("error %v", err)
	}
}

func TestAbort(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 1)
	w, err := Create(dir, tiny(2))
	must(t, err)
	must(t, w.Add(0, pieces(tiny(2))))
	w.Abort()
	w.Abort()
	if n := names(t, dir); len(n) != 1 {
		t.Errorf("left are %v", n)
	}
	if err := w.Commit(); err == nil {
		t.Error("committed after Abort")
	}
	// After Commit, Abort does nothing.
	w, err = Create(dir, tiny(3))
	must(t, err)
	must(t, w.Add(0, pieces(tiny(3))))
	must(t, w.Commit())
	w.Abort()
	if got := newest(t, dir); got != 3 {
		t.Errorf("step %d, want 3", got)
	}
}

func TestSaveWithoutPermission(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	mustSave(t, dir, 1)
	must(t, os.Chmod(dir, 0o555))
	defer os.Chmod(dir, 0o755)
	if err := save(dir, tiny(2)); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("save: error %v", err)
	}
	if err := Prepare(dir, Resume); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("prepare: error %v", err)
	}
	if newest(t, dir) != 1 {
		t.Error("the checkpoint before is gone")
	}
}
