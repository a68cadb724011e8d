package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// console is standard error. Many write to it at once; what has been said last stays last.
type console struct {
	file *os.File
	mu   sync.Mutex
	over bool
}

// stderr is the console of this process.
var stderr = &console{file: os.Stderr}

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return len(b), nil
	}
	return c.file.Write(b)
}

// last says the last line. line may take a while: nobody else says anything from then on.
func (c *console) last(line func() string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over = true
		fmt.Fprintln(c.file, "troupe:", line())
	}
}

func (c *console) isTerminal() bool { return term.IsTerminal(int(c.file.Fd())) }

// terminal is the terminal that a writer writes to, nil if it is none.
func terminal(w io.Writer) *os.File {
	if c, ok := w.(*console); ok && c.isTerminal() {
		return c.file
	}
	return nil
}
