package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// put makes files and, for names with a slash at the end, folders.
func put(t testing.TB, dir string, paths ...string) {
	t.Helper()
	for _, p := range paths {
		full := filepath.Join(dir, p)
		if strings.HasSuffix(p, "/") {
			must(t, os.MkdirAll(full, 0o755))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		must(t, os.WriteFile(full, []byte("x"), 0o644))
	}
}

func TestPrepare(t *testing.T) {
	for _, c := range []struct {
		name  string
		mode  Mode
		steps []int64
		put   []string
		want  string   // part of the error; empty: none
		left  []string // nil: as it was
	}{
		{"fresh, empty", Fresh, nil, nil, "", nil},
		{"fresh, checkpoints", Fresh, []int64{50, 100}, nil, "not empty: it holds step-00000100 and 1 more; --resume goes on from the newest checkpoint, --overwrite", nil},
		{"fresh, half a checkpoint", Fresh, nil, []string{"step-00000050.tmp/"}, "not empty: it holds step-00000050.tmp; --resume", nil},
		{"fresh, foreign", Fresh, nil, []string{"notes.txt"}, "not empty: it holds notes.txt; choose an empty folder", nil},
		{"resume, empty", Resume, nil, nil, "no complete checkpoint", nil},
		{"resume, half a checkpoint", Resume, nil, []string{"step-00000050.tmp/" + manifestName}, "no complete checkpoint", nil},
		{"resume, damaged", Resume, nil, []string{"step-00000050/" + manifestName}, "no complete checkpoint: ", nil},
		{"resume", Resume, []int64{50}, []string{"notes.txt", "step-00000060.tmp/shard-00000.safetensors", "step-00000040.removed/"}, "", []string{"notes.txt", "step-00000050"}},
		{"resume, foreign within", Resume, []int64{50}, []string{"step-00000060.tmp/notes.txt"}, "holds notes.txt, which is no part of a checkpoint", nil},
		{"overwrite, empty", Overwrite, nil, nil, "", nil},
		{"overwrite", Overwrite, []int64{50, 100}, []string{"step-00000060.tmp/", "step-00000060.removed/" + manifestName, "step-00000060.replaced/"}, "", []string{}},
		{"overwrite, foreign", Overwrite, []int64{50}, []string{"notes.txt"}, "notes.txt in it is no checkpoint, so it is not overwritten", nil},
		{"overwrite, foreign folder", Overwrite, []int64{50}, []string{"step-50/"}, "step-50 in it is no checkpoint", nil},
		{"overwrite, foreign within", Overwrite, []int64{50, 60}, []string{"step-00000060/notes.txt"}, "holds notes.txt, which is no part of a checkpoint, so it is not overwritten", nil},
		{"overwrite, folder within", Overwrite, []int64{50}, []string{"step-00000060/" + manifestName + "/"}, "no part of a checkpoint", nil},
	} {
		dir := t.TempDir()
		mustSave(t, dir, c.steps...)
		put(t, dir, c.put...)
		before := names(t, dir)
		err := Prepare(dir, c.mode)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		left := c.left
		if left == nil {
			left = before
		}
		if got := names(t, dir); len(got)+len(left) > 0 && !reflect.DeepEqual(got, left) {
			t.Errorf("%s: left are %v, want %v", c.name, got, left)
		}
	}
}

func TestPrepareMakesTheFolder(t *testing.T) {
	base := t.TempDir()
	for _, mode := range []Mode{Fresh, Overwrite} {
		dir := filepath.Join(base, mode.String(), "a", "b")
		must(t, Prepare(dir, mode))
		must(t, Prepare(dir, mode))
		if len(names(t, dir)) != 0 {
			t.Errorf("%s: in it are %v", mode, names(t, dir))
		}
	}
	dir := filepath.Join(base, "none")
	if err := Prepare(dir, Resume); !errors.Is(err, ErrNone) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a run that cannot be resumed has made its folder")
	}
	put(t, base, "file")
	for _, mode := range []Mode{Fresh, Resume, Overwrite} {
		if err := Prepare(filepath.Join(base, "file"), mode); err == nil || !strings.Contains(err.Error(), "is not a folder") {
			t.Errorf("%s: error %v", mode, err)
		}
		if err := Prepare("", mode); err == nil {
			t.Errorf("%s: an empty name is taken", mode)
		}
	}
}

// A link with the name of a step is not ours: what it points to is never removed.
func TestOverwriteFollowsNoLinks(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	mustSave(t, elsewhere, 50)
	if err := os.Symlink(filepath.Join(elsewhere, "step-00000050"), filepath.Join(dir, "step-00000050")); err != nil {
		t.Skip(err)
	}
	if err := Prepare(dir, Overwrite); err == nil {
		t.Error("a link was overwritten")
	}
	if newest(t, elsewhere) != 50 {
		t.Error("what the link points to is gone")
	}
}

// A step that was being replaced when its writer was killed comes back.
func TestResumeTakesTheReplacedStep(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 50)
	must(t, os.Rename(stepPath(dir, 50, ""), stepPath(dir, 50, suffixReplaced)))
	if got := newest(t, dir); got != 50 {
		t.Errorf("step %d, want 50", got)
	}
	must(t, Prepare(dir, Resume))
	if n := names(t, dir); !reflect.DeepEqual(n, []string{"step-00000050"}) || newest(t, dir) != 50 {
		t.Errorf("left are %v", n)
	}
}

func TestPrune(t *testing.T) {
	for _, c := range []struct {
		keep int
		want []string
	}{
		{0, []string{"notes.txt", "step-00000010", "step-00000020", "step-00000030", "step-00000040", "step-00000050.tmp"}},
		{1, []string{"notes.txt", "step-00000030", "step-00000040", "step-00000050.tmp"}},
		{2, []string{"notes.txt", "step-00000020", "step-00000030", "step-00000040", "step-00000050.tmp"}},
		{9, []string{"notes.txt", "step-00000010", "step-00000020", "step-00000030", "step-00000040", "step-00000050.tmp"}},
	} {
		dir := t.TempDir()
		mustSave(t, dir, 10, 20, 30, 40)
		// The newest is damaged: it does not count, and the newest complete one stays.
		resize(t, filepath.Join(stepPath(dir, 40, ""), "shard-00000.safetensors"), -1)
		put(t, dir, "notes.txt", "step-00000050.tmp/")
		must(t, Prune(dir, c.keep))
		if got := names(t, dir); !reflect.DeepEqual(got, c.want) {
			t.Errorf("keep %d: left are %v, want %v", c.keep, got, c.want)
		}
		if newest(t, dir) != 30 {
			t.Errorf("keep %d: the newest complete one is gone", c.keep)
		}
	}
	if err := Prune(t.TempDir(), -1); err == nil {
		t.Error("keep -1 is taken")
	}
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 200, 10, 1_000_000_000)
	put(t, dir, "step-00000300/x", "step-00000400.tmp/", "step-000000010/", "step-00000020")
	entries, err := List(dir)
	must(t, err)
	var steps []int64
	for _, e := range entries {
		steps = append(steps, e.Step)
		if (e.Err != nil) != (e.Step == 300) {
			t.Errorf("step %d: %v", e.Step, e.Err)
		}
	}
	if want := []int64{10, 200, 300, 1_000_000_000}; !reflect.DeepEqual(steps, want) {
		t.Errorf("steps %v, want %v", steps, want)
	}
	if entries, err := List(filepath.Join(dir, "none")); len(entries) != 0 || err != nil {
		t.Errorf("%v, %v", entries, err)
	}
}
