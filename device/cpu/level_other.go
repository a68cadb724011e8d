//go:build !amd64

package cpu

func vectorLevels() []Level { return nil }

func vectors(Level) (*rowOps[float32], *productTable) { return nil, nil }

// FusedMultiplyAdds measures the peak of vector kernels, of which there are none here: it returns 0.
func FusedMultiplyAdds(Level, int) float64 { return 0 }

// DotProducts is 0 as well.
func DotProducts(Level, int) float64 { return 0 }
