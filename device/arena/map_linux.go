package arena

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapMemory is size bytes outside the Go heap that begin at a huge page and are 0.
func mapMemory(size int64) (data []byte, unmap func(), err error) {
	all, err := unix.Mmap(-1, 0, int(size+hugePage), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, nil, err
	}
	off := -int64(uintptr(unsafe.Pointer(unsafe.SliceData(all)))) & (hugePage - 1)
	data = all[off : off+size : off+size]
	if size > hugePage {
		// Advice: a kernel without huge pages says no, and nothing is lost.
		_ = unix.Madvise(data, unix.MADV_HUGEPAGE)
	}
	// Munmap fails only for what is no mapping, and then there is nothing to give back.
	return data, func() { _ = unix.Munmap(all) }, nil
}
