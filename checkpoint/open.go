package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sort"
	"sync"
)

// Checkpoint is a checkpoint that has been verified, open for reading. It is safe for concurrent
// use. It stays readable when its folder is removed by Prune.
type Checkpoint struct {
	meta    Meta
	path    string
	skipped []error
	index   *index
	files   []*os.File

	mu   sync.Mutex
	read map[key][]span
}

type span struct{ lo, hi int }

// Open verifies and opens the newest complete checkpoint in dir, or the one that dir itself is.
// Newer ones that are damaged are skipped and reported in Skipped. The error is ErrNone if there is
// no complete one; it is then a *Damage too if there are damaged ones.
func Open(dir string) (*Checkpoint, error) {
	return open(dir, func(int64) bool { return true })
}

// OpenStep verifies and opens the checkpoint of one step in dir.
func OpenStep(dir string, step int64) (*Checkpoint, error) {
	c, err := open(dir, func(s int64) bool { return s == step })
	if err != nil {
		return nil, fmt.Errorf("step %d: %w", step, err)
	}
	return c, nil
}

func open(dir string, want func(step int64) bool) (*Checkpoint, error) {
	steps, err := locate(dir)
	if err != nil {
		return nil, err
	}
	var skipped []error
	for i := len(steps) - 1; i >= 0; i-- {
		if !want(steps[i].step) {
			continue
		}
		var first error
		c := examine(steps[i].path, func(f finding) bool {
			first = f.err
			return first == nil
		})
		if first == nil {
			c.skipped = skipped
			return c, nil
		}
		c.Close()
		if d := (*Damage)(nil); !errors.As(first, &d) {
			return nil, first
		}
		skipped = append(skipped, first)
	}
	if len(skipped) > 0 {
		return nil, fmt.Errorf("%w in %s: %w", ErrNone, dir, skipped[0])
	}
	return nil, fmt.Errorf("%w in %s", ErrNone, dir)
}

// locate lists what dir holds, oldest first: dir itself if it is the folder of a checkpoint, else
// the folders in it.
func locate(dir string) ([]entry, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no folder %s", ErrNone, dir)
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%w: %s is not a folder", ErrNone, dir)
	}
	if _, err := os.Stat(filepath.Join(dir, manifestName)); err == nil {
		e := entry{path: dir}
		if m, err := readManifest(dir); err == nil {
			e.step = m.Step
		}
		return []entry{e}, nil
	}
	return candidates(dir)
}

// Meta is what the checkpoint is of.
func (c *Checkpoint) Meta() Meta { return c.meta }

// Path is the folder.
func (c *Checkpoint) Path() string { return c.path }

// Skipped says why newer ones were not taken, newest first.
func (c *Checkpoint) Skipped() []error { return c.skipped }

// Match says whether a run that is described by want can go on from the checkpoint; see Meta.Match.
func (c *Checkpoint) Match(want Meta) error { return c.meta.Match(want) }

// Close ends reading.
func (c *Checkpoint) Close() error {
	var err error
	for _, f := range c.files {
		err = errors.Join(err, f.Close())
	}
	c.files = nil
	return err
}

// Read reads elements [lo, hi) of one kind of one parameter into dst, which has hi-lo elements,
// whatever the pieces are in which they were written.
func (c *Checkpoint) Read(name string, kind Kind, lo, hi int, dst []float32) error {
	k := key{kind, name}
	if err := c.index.check(k, lo, hi); err != nil {
		return fmt.Errorf("checkpoint %s: %w", c.path, err)
	}
	if len(dst) != hi-lo {
		return fmt.Errorf("checkpoint %s: elements [%d:%d] of %s into %d elements", c.path, lo, hi, k, len(dst))
	}
	buf := make([]byte, min(4*len(dst), blockSize))
	err := c.index.within(k, lo, hi, func(p place, from, to int) error {
		for from < to {
			n := min(to-from, blockSize/4)
			if _, err := c.files[p.file].ReadAt(buf[:4*n], p.offset+4*int64(from-p.lo)); err != nil {
				return err
			}
			for i, out := 0, dst[from-lo:][:n]; i < n; i++ {
				out[i] = math.Float32frombits(binary.LittleEndian.Uint32(buf[4*i:]))
			}
			from += n
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("checkpoint %s: read %s: %w", c.path, k, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read[k] = append(c.read[k], span{lo, hi})
	return nil
}

// AllRead is nil if Read has been asked for every element of every kind of every parameter, and
// else an error that names some that were not: state that is silently dropped is the error that is
// hardest to see later.
func (c *Checkpoint) AllRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.meta.Parameters {
		for _, kind := range c.meta.Kinds {
			k := key{kind, p.Name}
			spans := c.read[k]
			sort.Slice(spans, func(i, j int) bool { return spans[i].lo < spans[j].lo })
			at, n := 0, p.Len()
			for _, s := range spans {
				if s.lo > at {
					n = s.lo
					break
				}
				at = max(at, s.hi)
			}
			if at < n {
				return fmt.Errorf("checkpoint %s: elements [%d:%d] of %s were not read", c.path, at, n, k)
			}
		}
	}
	return nil
}
