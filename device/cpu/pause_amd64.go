package cpu

// pause lets n instructions pass that do nothing, and tells the processor that it waits. n is at least 1.
//
//go:noescape
func pause(n int)
