package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrInUse is the error of a folder that another run writes to.
var ErrInUse = errors.New("in use by another run")

// Lock keeps other runs out of a folder until it is released or the process ends, however it ends. It leaves nothing in the folder.
type Lock struct{ folder *os.File }

// Acquire locks a folder, which must exist. The error is ErrInUse when another run has it.
func Acquire(dir string) (*Lock, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, fmt.Errorf("save.dir %s: %w", dir, err)
	}
	return &Lock{f}, nil
}

// Holds reports whether dir is the folder that is locked, and not another one that has its name now.
func (l *Lock) Holds(dir string) bool {
	if l == nil {
		return false
	}
	mine, err := l.folder.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(dir)
	return err == nil && os.SameFile(mine, there)
}

// Release lets other runs in. A nil Lock holds nothing.
func (l *Lock) Release() error {
	if l == nil {
		return nil
	}
	return l.folder.Close()
}
