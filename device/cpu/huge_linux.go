package cpu

import "golang.org/x/sys/unix"

// adviseHuge asks the kernel for huge pages. It is advice: without them everything works, only
// slower, so the error does not matter.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
