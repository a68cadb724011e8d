package cpu

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processor is the number of the processor that the thread is on; -1 where it cannot be had.
func processor() int {
	var p uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&p)), 0, 0); errno != 0 {
		return -1
	}
	return int(p)
}

// move brings the thread to a processor that nobody of this process computes on, and returns it; -1 if there is none.
func move(from int) int {
	runtime.LockOSThread() // what is changed is put back on the same thread
	defer runtime.UnlockOSThread()
	var legal unix.CPUSet
	if unix.SchedGetaffinity(0, &legal) != nil {
		return -1
	}
	for p, left := 0, legal.Count(); left > 0 && p < mostProcessors; p++ {
		if !legal.IsSet(p) {
			continue
		}
		left--
		if p == from || taken[p].Load() > 0 {
			continue
		}
		var one unix.CPUSet
		one.Set(p)
		if unix.SchedSetaffinity(0, &one) != nil || unix.SchedSetaffinity(0, &legal) != nil {
			return -1
		}
		return p
	}
	return -1
}
