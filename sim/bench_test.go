package sim_test

import (
	"testing"

	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/sim"
)

// BenchmarkSeed is one run of two steps at pipeline 3, data 2, under an unkind network.
func BenchmarkSeed(b *testing.B) {
	d := cpu.New(cpu.Options{})
	defer d.Close()
	p := tiny(b, "layout.pipeline=3", "layout.data=2")
	b.ReportAllocs()
	for seed := uint64(0); b.Loop(); seed++ {
		simulate(b, d, p, sim.Config{Seed: seed, Network: sim.Unkind})
	}
}
