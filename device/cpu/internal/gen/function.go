package main

import (
	"fmt"
	"strings"
)

// level is the width of the vector registers in bits.
type level int

const (
	avx2   level = 256
	avx512 level = 512
)

func (l level) String() string { return map[level]string{avx2: "AVX2", avx512: "AVX512"}[l] }

// generator collects the functions of one or more files.
type generator struct {
	text      strings.Builder // the assembly
	stubs     strings.Builder // the Go declarations
	constants map[string]uint32
	names     []string // functions of a table, without their level
	lanes     bool     // the masks of tails are needed
	frame     int      // bytes of stack that the next function needs
}

// argument of a function: a pointer or an int in a general register, or a float32 that is
// broadcast to a vector.
type argument struct {
	name  string
	float bool
	words bool // a pointer to uint32
	half  bool // a pointer to bfloat16
}

func pointer(name string) argument { return argument{name: name} }
func float(name string) argument   { return argument{name: name, float: true} }
func words(name string) argument   { return argument{name: name, words: true} }
func half(name string) argument    { return argument{name: name, half: true} }

// size is the bytes of the argument on the stack.
func (a argument) size() int {
	if a.float {
		return 4
	}
	return 8
}

// general are the registers that hold arguments, in order. AX, BX and CX are scratch: AX is the
// offset of a loop, BX is for masks, CX counts.
var general = []string{"DI", "SI", "DX", "R8", "R9", "R10", "R11", "R12", "R13", "R15"}

// function is one function of one level while it is written.
type function struct {
	*generator
	level  level
	name   string
	offset map[string]int    // of arguments on the stack
	reg    map[string]string // of pointers and ints
	free   []int             // numbers of vector registers, in units of the level
	labels int
	masked bool // the loads and stores are those of the tail
	past   bool // stores go past the caches
}

// vec is a logical vector: one Z register, or two Y registers.
type vec []int

// function starts a function with the given arguments; results are float32. The Go declaration has
// doc as its comment.
func (g *generator) function(l level, name, doc string, results []string, args ...argument) *function {
	f := &function{generator: g, level: l, name: name + l.String(), offset: map[string]int{}, reg: map[string]string{}}
	n := 32
	if l == avx2 {
		n = 16
	}
	for i := range n {
		f.free = append(f.free, n-1-i)
	}
	var list []string
	at, regs := 0, 0
	for _, a := range args {
		at = (at + a.size() - 1) / a.size() * a.size()
		f.offset[a.name] = at
		at += a.size()
		switch {
		case a.float:
			list = append(list, a.name+" float32")
		case a.words:
			list = append(list, a.name+" *uint32")
		case a.half:
			list = append(list, a.name+" *BFloat16")
		case isInt(a.name):
			list = append(list, a.name+" int")
		default:
			list = append(list, a.name+" *float32")
		}
		if !a.float && a.name != "n" {
			f.reg[a.name] = general[regs]
			regs++
		}
	}
	var out string
	if len(results) > 0 {
		at = (at + 7) &^ 7
		out = " (" + strings.Join(results, ", ") + " float32)"
		for i, r := range results {
			f.offset[r] = at + 4*i
		}
		at += 4 * len(results)
	}
	signature := fmt.Sprintf("func %s(%s)%s", f.name, strings.Join(list, ", "), out)
	if doc != "" {
		g.names = append(g.names, name)
		fmt.Fprintf(&g.stubs, "\n// %s %s\n//", f.name, doc)
		fmt.Fprintf(&g.stubs, "\n//go:noescape\n%s\n", signature)
	}
	fmt.Fprintf(&g.text, "\n// %s\nTEXT ·%s(SB), NOSPLIT, $%d-%d\n", signature, f.name, g.frame, at)
	g.frame = 0
	for _, a := range args {
		switch {
		case a.name == "n":
			f.op("MOVQ n+%d(FP), CX", f.offset["n"])
		case !a.float:
			f.op("MOVQ %s+%d(FP), %s", a.name, f.offset[a.name], f.reg[a.name])
		}
	}
	return f
}

// isInt: pointers are named for what they point at; counts, strides and switches are these.
func isInt(name string) bool {
	switch name {
	case "n", "k", "rows", "lda", "ldb", "ldc", "ldd", "lds", "stride", "add", "blocks":
		return true
	}
	return false
}

func (f *function) op(format string, args ...any) { fmt.Fprintf(&f.text, "\t"+format+"\n", args...) }

// label makes a name for a jump target; at puts it.
func (f *function) label(name string) string {
	f.labels++
	return fmt.Sprintf("%s%d", name, f.labels)
}

func (f *function) at(label string) { fmt.Fprintf(&f.text, "%s:\n", label) }

func (f *function) end() {
	f.op("VZEROUPPER")
	f.op("RET")
}

// units is how many registers make a vector.
func (f *function) units() int { return 512 / int(f.level) }

// bytes is the size of one register.
func (f *function) bytes() int { return int(f.level) / 8 }

func (f *function) vec() vec {
	v := make(vec, f.units())
	for i := range v {
		v[i] = f.unit()
	}
	return v
}

func (f *function) unit() int {
	if len(f.free) == 0 {
		panic(f.name + ": out of vector registers")
	}
	r := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	return r
}

func (f *function) release(vs ...vec) {
	for _, v := range vs {
		for i := range v {
			f.free = append(f.free, v[len(v)-1-i])
		}
	}
}

// take removes a register from the free ones.
func (f *function) take(r int) {
	for i, x := range f.free {
		if x == r {
			f.free = append(f.free[:i], f.free[i+1:]...)
			return
		}
	}
	panic(fmt.Sprintf("%s: register %d is in use", f.name, r))
}

func (f *function) r(unit int) string {
	if f.level == avx512 {
		return fmt.Sprintf("Z%d", unit)
	}
	return fmt.Sprintf("Y%d", unit)
}
