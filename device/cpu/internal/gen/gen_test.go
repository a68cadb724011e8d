package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What is checked in is what the generator writes.
func TestFilesAreUpToDate(t *testing.T) {
	for name, want := range Files() {
		got, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes: run go generate in device/cpu", name)
		}
	}
}
