//go:build !linux

package cpu

// processor is -1: on this system threads stay where the scheduler puts them.
func processor() int { return -1 }

func move(int) int { return -1 }
