//go:build !linux

package arena

import "unsafe"

// mapMemory is size bytes of the Go heap.
func mapMemory(size int64) (data []byte, unmap func(), err error) {
	all := make([]byte, size+Align)
	off := -int64(uintptr(unsafe.Pointer(unsafe.SliceData(all)))) & (Align - 1)
	return all[off : off+size : off+size], func() {}, nil
}
