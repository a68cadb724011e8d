package main

import (
	"os"
	"runtime/debug"
)

// heapPercent is GOGC where the environment has none. Tensors are not in the Go heap, so it is small, and frames
// of the transport are most of what is collected: collecting it at twice its size would be often.
const heapPercent = 400

// heapShare is the part of the machine's memory from which on the collector works harder, where the
// environment has no GOMEMLIMIT.
const heapShare = 0.7

// tuneHeap sets the garbage collector. GOGC and GOMEMLIMIT win.
func tuneHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapPercent)
	}
	if n := machineMemory(); n > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(heapShare * float64(n)))
	}
}
