package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// flip changes bits of one byte of a file.
func flip(t testing.TB, path string, at int64, bits byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[at] ^= bits
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Every bit of every file counts: the checkpoint is refused, the file is named, and the one before
// it is taken.
func TestEveryFlippedBitIsFound(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 50, 100)
	for _, name := range names(t, filepath.Join(dir, "step-00000100")) {
		path := filepath.Join(dir, "step-00000100", name)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := int64(0); at < info.Size(); at += 3 {
			bit := byte(1) << (at % 8)
			flip(t, path, at, bit)
			c, err := Open(dir)
			if err != nil {
				t.Fatalf("%s byte %d: %v", name, at, err)
			}
			if c.Meta().Step != 50 || len(c.Skipped()) != 1 || !strings.Contains(c.Skipped()[0].Error(), path) {
				t.Fatalf("%s byte %d: step %d, skipped %v", name, at, c.Meta().Step, c.Skipped())
			}
			c.Close()
			flip(t, path, at, bit)
		}
	}
	if newest(t, dir) != 100 {
		t.Error("the mended checkpoint is not taken")
	}
}

func TestDamageIsNamed(t *testing.T) {
	const shard = "shard-00001.safetensors"
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   string
	}{
		{"truncated shard", func(t *testing.T, dir string) { resize(t, filepath.Join(dir, shard), -3) }, shard + " is damaged: it is truncated: "},
		{"long shard", func(t *testing.T, dir string) { resize(t, filepath.Join(dir, shard), 3) }, "3 more than were written"},
		{"empty shard", func(t *testing.T, dir string) { resize(t, filepath.Join(dir, shard), -1<<30) }, "it is truncated: 0 of"},
		{"no shard", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, shard))) }, shard + " is damaged: it is missing"},
		{"a folder", func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, shard)))
			must(t, os.Mkdir(filepath.Join(dir, shard), 0o755))
		}, "it is not a file"},
		{"no manifest", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, manifestName))) }, "manifest.json is damaged: it is missing"},
		{"empty manifest", func(t *testing.T, dir string) { resize(t, filepath.Join(dir, manifestName), -1<<30) }, "not a manifest"},
		{"long manifest", func(t *testing.T, dir string) { resize(t, filepath.Join(dir, manifestName), 1) }, "not a manifest"},
		{"moved", func(t *testing.T, dir string) {
			must(t, os.Rename(dir, filepath.Join(filepath.Dir(dir), "step-00000200")))
		}, "it is of step 100"},
	} {
		dir := t.TempDir()
		mustSave(t, dir, 100)
		c.damage(t, filepath.Join(dir, "step-00000100"))
		_, err := Open(dir)
		var d *Damage
		if !errors.Is(err, ErrNone) || !errors.As(err, &d) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		reports, err := Check(dir)
		if err != nil {
			t.Fatal(err)
		}
		bad := 0
		for _, r := range reports {
			if r.Err != nil {
				bad++
			}
		}
		if bad != 1 {
			t.Errorf("%s: %d files are bad in %v", c.name, bad, reports)
		}
		if err := Prepare(dir, Resume); err == nil && c.name != "a folder" {
			t.Errorf("%s: a run may be resumed", c.name)
		}
	}
}

func resize(t *testing.T, path string, by int64) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	must(t, os.Truncate(path, max(0, info.Size()+by)))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCheckIsALineForEachFile(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 1, 2)
	reports, err := Check(dir)
	must(t, err)
	if len(reports) != 6 {
		t.Fatalf("%d reports, want 6: %v", len(reports), reports)
	}
	for _, r := range reports {
		if r.Err != nil || !strings.Contains(r.String(), " is ok, ") || r.Bytes == 0 {
			t.Errorf("%s", r)
		}
	}
	if reports[0].Step != 1 || reports[5].Step != 2 {
		t.Errorf("the order is %v", reports)
	}
	for _, none := range []string{t.TempDir(), filepath.Join(dir, "none"), reports[0].Path} {
		if _, err := Check(none); !errors.Is(err, ErrNone) {
			t.Errorf("%s: error %v", none, err)
		}
	}
}
