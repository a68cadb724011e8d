package checkpoint

import (
	"errors"
	"testing"
)

// TestLock: one run at a time in a folder.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	a, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("a second run: %v, want ErrInUse", err)
	}
	if err := a.Release(); err != nil {
		t.Fatal(err)
	}
	b, err := Acquire(dir)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	b.Release()
}
