package main

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machineMemory is the bytes that this process may use: those of the machine, or of its control
// group where that allows less. It is 0 where nobody knows.
func machineMemory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	n := uint64(info.Totalram) * uint64(info.Unit)
	text, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return n
	}
	if limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil { // it may be "max"
		n = min(n, limit)
	}
	return n
}
