package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// scenario is something that changes the disk, what is there before, and the steps of which one
// must be the newest after it has been killed anywhere.
type scenario struct {
	name   string
	before func(t *testing.T, dir string)
	run    func(dir string) error
	// survives are the steps that may be the newest; -1: none.
	survives []int64
	// done is the newest step when it has not been killed.
	done int64
}

var scenarios = []scenario{
	{"the first save", func(*testing.T, string) {}, func(dir string) error { return save(dir, tiny(1)) }, []int64{-1, 1}, 1},
	{"a save", func(t *testing.T, dir string) { mustSave(t, dir, 1) }, func(dir string) error { return save(dir, tiny(2)) }, []int64{1, 2}, 2},
	{"a save over what a killed one left", func(t *testing.T, dir string) {
		mustSave(t, dir, 1)
		put(t, dir, "step-00000002.tmp/shard-00004.safetensors", "step-00000002.tmp/"+manifestName)
	}, func(dir string) error { return save(dir, tiny(2)) }, []int64{1, 2}, 2},
	{"a save of a step that is there", func(t *testing.T, dir string) { mustSave(t, dir, 1, 2) }, func(dir string) error { return save(dir, tiny(2)) }, []int64{2}, 2},
	{"a prune", func(t *testing.T, dir string) { mustSave(t, dir, 1, 2, 3) }, func(dir string) error { return Prune(dir, 1) }, []int64{3}, 3},
	{"a resume", func(t *testing.T, dir string) {
		mustSave(t, dir, 1, 2)
		must(t, os.Rename(stepPath(dir, 2, ""), stepPath(dir, 2, suffixReplaced)))
		put(t, dir, "step-00000003.tmp/"+manifestName, "step-00000001.removed/"+manifestName)
	}, func(dir string) error { return Prepare(dir, Resume) }, []int64{2}, 2},
	{"an overwrite", func(t *testing.T, dir string) { mustSave(t, dir, 1, 2) }, func(dir string) error {
		if err := Prepare(dir, Overwrite); err != nil {
			return err
		}
		return save(dir, tiny(1))
	}, []int64{-1, 1, 2}, 1},
}

// change is one call of the failpoint.
type change struct {
	point string
	paths []string
}

// killed is what the failpoint panics with: like a real kill it runs none of the code behind it.
type killed struct{}

// runUntil runs s and kills it at change n, counted from 0; it returns the changes before that, and
// whether it was killed.
func runUntil(t *testing.T, s scenario, dir string, n int) (done []change, dead bool) {
	t.Helper()
	defer func() {
		failpoint = func(string, ...string) error { return nil }
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
			dead = true
		}
	}()
	failpoint = func(point string, paths ...string) error {
		if len(done) == n {
			panic(killed{})
		}
		done = append(done, change{point, paths})
		return nil
	}
	if err := s.run(dir); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return done, false
}

// loose is what is not durable when the power goes after done: the files that were written and
// not synced, and the renames in folders that were not synced since, oldest first.
func loose(done []change) (files map[string]bool, renames []change) {
	files = map[string]bool{}
	for _, c := range done {
		switch c.point {
		case pointCreate:
			files[c.paths[0]] = true
		case pointSync:
			delete(files, c.paths[0])
		case pointRename:
			renames = append(renames, c)
			for f := range files { // they move with their folder
				if filepath.Dir(f) == c.paths[0] {
					delete(files, f)
					files[filepath.Join(c.paths[1], filepath.Base(f))] = true
				}
			}
		case pointSyncFolder:
			renames = slices.DeleteFunc(renames, func(r change) bool { return filepath.Dir(r.paths[1]) == c.paths[0] })
		}
	}
	return files, renames
}

// powerCut takes back half of the contents of the loose files, and the newest undo of the loose
// renames.
func powerCut(t *testing.T, done []change, undo int) {
	t.Helper()
	files, renames := loose(done)
	for path := range files {
		if info, err := os.Stat(path); err == nil {
			must(t, os.Truncate(path, info.Size()/2))
		}
	}
	for i := range min(undo, len(renames)) {
		last := renames[len(renames)-1-i]
		must(t, os.Rename(last.paths[1], last.paths[0]))
	}
}

// At every change on disk the process is killed, or the power goes; then the newest complete
// checkpoint is opened, a run is resumed from it, and it saves again.
func TestKilledAtEveryChange(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			before := t.TempDir()
			s.before(t, before)
			// The changes when nothing happens.
			whole := filepath.Join(t.TempDir(), "whole")
			must(t, os.CopyFS(whole, os.DirFS(before)))
			changes, _ := runUntil(t, s, whole, -1)
			powerCut(t, changes, len(changes)) // all of it is durable
			if got := newest(t, whole); got != s.done {
				t.Fatalf("step %d, want %d", got, s.done)
			}
			for n := range changes {
				_, renames := loose(changes[:n])
				for cut := -1; cut <= len(renames); cut++ { // -1: the process is killed; 0 and more: the power goes, and so many renames are undone
					dir := filepath.Join(t.TempDir(), "dir")
					must(t, os.CopyFS(dir, os.DirFS(before)))
					done, dead := runUntil(t, s, dir, n)
					if !dead {
						t.Fatalf("only %d of %d changes", len(done), len(changes))
					}
					if cut >= 0 {
						powerCut(t, done, cut)
					}
					survivor(t, s, dir, fmt.Sprintf("killed at change %d, cut %d, after %v", n, cut, done))
				}
			}
		})
	}
}

// survivor checks what is there after a kill.
func survivor(t *testing.T, s scenario, dir, at string) {
	t.Helper()
	step := int64(-1)
	c, err := Open(dir)
	if err == nil {
		verify(t, c)
		step = c.Meta().Step
		c.Close()
	} else if !errors.Is(err, ErrNone) {
		t.Fatalf("%s: %v", at, err)
	}
	legal := false
	for _, l := range s.survives {
		legal = legal || l == step
	}
	if !legal {
		t.Fatalf("%s: the newest is %d, want one of %v (%v); on disk are %v", at, step, s.survives, err, names(t, dir))
	}
	if step < 0 {
		if err := Prepare(dir, Resume); !errors.Is(err, ErrNone) {
			t.Fatalf("%s: resume: %v", at, err)
		}
		must(t, Prepare(dir, Overwrite))
		step = 0
	} else {
		if err := Prepare(dir, Resume); err != nil {
			t.Fatalf("%s: resume: %v", at, err)
		}
		if got := newest(t, dir); got != step {
			t.Fatalf("%s: step %d before Prepare and %d after", at, step, got)
		}
	}
	mustSave(t, dir, step+1)
	if got := newest(t, dir); got != step+1 {
		t.Fatalf("%s: saved step %d, the newest is %d", at, step+1, got)
	}
	for _, name := range names(t, dir) {
		if _, suffix, ok := parseStep(name); !ok || suffix != "" {
			t.Fatalf("%s: %s is left after a resume and a save", at, name)
		}
	}
}

// At every change on disk there is an error, such as a full disk: it is one line that says what and
// where, what was begun is removed, and what was there before is untouched.
func TestErrorAtEveryChange(t *testing.T) {
	defer func() { failpoint = func(string, ...string) error { return nil } }()
	for _, replace := range []bool{false, true} {
		for n := 0; ; n++ {
			dir := t.TempDir()
			mustSave(t, dir, 1)
			step := int64(2)
			if replace {
				step = 1
			}
			seen := 0
			var failedAt change
			failpoint = func(point string, paths ...string) error {
				seen++
				if seen-1 == n {
					failedAt = change{point, paths}
					return &os.PathError{Op: point, Path: paths[0], Err: syscall.ENOSPC}
				}
				return nil
			}
			err := save(dir, tiny(step))
			failpoint = func(string, ...string) error { return nil }
			if seen <= n {
				if n == 0 || err != nil {
					t.Fatalf("%d changes, error %v", seen, err)
				}
				break
			}
			// From here on the new checkpoint is there, and what fails is only to make that durable
			// or to tidy up.
			last := failedAt.paths[len(failedAt.paths)-1]
			published := strings.HasSuffix(last, suffixRemoved) || failedAt.point == pointSyncFolder && last == dir || failedAt.point == pointRemove
			if err == nil && !(published && replace) {
				t.Errorf("%v failed without an error", failedAt)
			}
			if err != nil && (!errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), fmt.Sprintf("save checkpoint of step %d in %s: ", step, dir)) || !strings.Contains(err.Error(), failedAt.paths[0])) {
				t.Errorf("%v: error %v", failedAt, err)
			}
			left := names(t, dir)
			if !published && (len(left) != 1 || left[0] != "step-00000001") {
				t.Errorf("%v: left are %v", failedAt, left)
			}
			if got := newest(t, dir); got != 1 && !published {
				t.Errorf("%v: the newest is %d", failedAt, got)
			}
		}
	}
}
