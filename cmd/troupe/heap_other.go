//go:build !linux

package main

// machineMemory is not known here.
func machineMemory() uint64 { return 0 }
