// Command gen writes the assembly of package cpu: every kernel once for AVX-512 and once for
// AVX2 with FMA, from one description. Run it with go generate in device/cpu.
//
// A logical vector is sixteen float32: one Z register, or two Y registers. Both forms do the
// same operations in the same order on every lane, and reduce lanes in the same tree; so both give the
// same bits.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	for name, text := range Files() {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}
