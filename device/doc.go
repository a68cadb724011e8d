// Package device says what a device is: memory that is counted, streams that run work in order,
// and the kernels that training needs. It knows nothing of models.
//
//	d := cpu.New(cpu.Options{Float: device.F32})
//	s, err := d.OpenStream("stage.p0.d0", 2)
//	x, err := d.Alloc(account, device.Activations, device.F32, n)
//	s.Do(func(k device.Kernels) error {
//		k.Fill(x, 1)
//		return nil
//	}, func(err error) { tell(err) })
//
// Invariants: a stream runs its work in the order in which it was queued; the results of kernels
// are the same bits for any number of threads; a buffer's bytes are charged to one account from
// Alloc to the last Release.
package device
