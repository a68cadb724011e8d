// Package cpu is the device that every machine has: kernels in Go (and in assembly where the
// processor has the instructions), memory of the process, and a few threads for each stream.
//
//	d := cpu.New(cpu.Options{Float: device.F32})
//	defer d.Close()
//	s, _ := d.OpenStream("worker", 2)
//	x, _ := d.Alloc(account, device.Activations, device.F32, 4)
//	copy(cpu.Float32s(x), []float32{1, 2, 3, 4})
//	s.Do(func(k device.Kernels) error { k.Add(x, x, x); return nil }, done)
//	s.Close() // waits
//
// # Streams and threads
//
// A stream is one goroutine locked to a thread, which runs the queued work, and threads-1
// workers that live as long as the stream. A kernel cuts its output into tiles;
// whoever is free takes the next tile. A sum is always inside one tile, or its parts are added in an order that
// depends on the shape alone: so the bits do not depend on the number of threads.
//
// The queue of a stream grows as needed: whoever queues work bounds it (a machine launches only
// a few operations ahead).
//
// # Levels
//
// For float32 there are kernels in assembly for AVX-512 and AVX2, chosen when the device is opened
// (Options.Level); they give the same bits. Float64, and float32 elsewhere, is portable Go: see Level for which
// of its bits are equal too. The assembly comes from one description in internal/gen; go generate writes it.
//
// # Memory
//
// What an account allocates comes from what Reserve has set aside for it (package arena), as long as
// it fits. For the rest:
//
// Alloc charges exactly the bytes asked for. Behind that, memory is kept in size classes (at most
// an eighth larger) and reused, together with the Buffer objects, so that a step like the one before takes
// nothing from the Go heap. Memory starts at a multiple of 64 bytes, and large memory asks for huge pages.
// Streams keep scratch memory of some megabytes for packed panels that no account knows.
//
// # Errors
//
// Kernels panic on slices that are too short, of a wrong type or not addressable: such a call is
// a bug of the caller. Inside Stream.Do the panic arrives as a *device.Panic.
package cpu
