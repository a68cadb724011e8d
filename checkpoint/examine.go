package checkpoint

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/troupe-train/troupe/checkpoint/safetensors"
)

// Damage is the error of a checkpoint whose files are not what was committed.
type Damage struct {
	// Path is the file, or the folder of the checkpoint.
	Path string
	// Problem says what is wrong.
	Problem string
}

func (e *Damage) Error() string { return fmt.Sprintf("%s is damaged: %s", e.Path, e.Problem) }

func damaged(path, format string, args ...any) error {
	return &Damage{path, fmt.Sprintf(format, args...)}
}

// reading makes a Damage of an error that reading a file has given, unless the file may be in order
// and it is only us who may not read it.
func reading(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return damaged(path, "it is missing")
	}
	return damaged(path, "%v", err)
}

func readManifest(path string) (*manifest, error) {
	name := filepath.Join(path, manifestName)
	f, err := os.Open(name)
	if err != nil {
		return nil, reading(name, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, manifestMax))
	if err != nil {
		return nil, reading(name, err)
	}
	m, err := parseManifest(text)
	if err != nil {
		return nil, damaged(name, "%v", err)
	}
	if step, _, ok := parseStep(filepath.Base(path)); ok && step != m.Step {
		return nil, damaged(name, "it is of step %d", m.Step)
	}
	return m, nil
}

// glance checks what can be checked without reading the files.
func glance(path string) (*manifest, error) {
	m, err := readManifest(path)
	if err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		name := filepath.Join(path, f.Name)
		info, err := os.Stat(name)
		if err != nil {
			return nil, reading(name, err)
		}
		if err := checkSize(name, info, f.Bytes); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func checkSize(name string, info fs.FileInfo, want int64) error {
	switch got := info.Size(); {
	case !info.Mode().IsRegular():
		return damaged(name, "it is not a file")
	case got < want:
		return damaged(name, "it is truncated: %d of %d bytes", got, want)
	case got > want:
		return damaged(name, "it has %d bytes, %d more than were written", got, got-want)
	}
	return nil
}

// finding is what examine says of one file, or of the whole.
type finding struct {
	path  string
	bytes int64
	err   error
}

// examine verifies a checkpoint file by file: sizes, hashes, headers, and that the pieces are
// complete. It stops when found returns false. The Checkpoint is of use if every err was nil; it is
// to be closed anyway.
func examine(path string, found func(finding) bool) *Checkpoint {
	c := &Checkpoint{path: path, read: map[key][]span{}}
	name := filepath.Join(path, manifestName)
	m, err := readManifest(path)
	var size int64
	if info, e := os.Stat(name); e == nil {
		size = info.Size()
	}
	if !found(finding{name, size, err}) || err != nil {
		return c
	}
	c.meta = m.meta()
	c.index = newIndex(c.meta)
	sound := true
	for i, f := range m.Files {
		name := filepath.Join(path, f.Name)
		err := c.openFile(i, name, f)
		sound = sound && err == nil
		if !found(finding{name, f.Bytes, err}) {
			return c
		}
	}
	if sound {
		if err := c.index.complete(); err != nil {
			found(finding{path, 0, damaged(path, "%v", err)})
		}
	}
	return c
}

// openFile verifies file number i and adds its pieces to the index.
func (c *Checkpoint) openFile(i int, name string, want fileEntry) error {
	f, err := os.Open(name)
	if err != nil {
		return reading(name, err)
	}
	c.files = append(c.files, f)
	info, err := f.Stat()
	if err != nil {
		return reading(name, err)
	}
	if err := checkSize(name, info, want.Bytes); err != nil {
		return err
	}
	if err := checkHash(name, f, want); err != nil {
		return err
	}
	h, start, err := safetensors.Read(io.NewSectionReader(f, 0, want.Bytes), want.Bytes)
	if err != nil {
		return damaged(name, "%v", err)
	}
	for _, t := range h.Tensors {
		kind, parameter, lo, hi, ok := parseTensorName(t.Name)
		if !ok || t.DType != safetensors.F32 || len(t.Shape) != 1 || t.Shape[0] != hi-lo {
			return damaged(name, "tensor %q, %s %v, is not the piece of a parameter", t.Name, t.DType, t.Shape)
		}
		if err := c.index.add(key{kind, parameter}, place{lo: lo, hi: hi, file: i, offset: start + t.Begin}); err != nil {
			return damaged(name, "%v", err)
		}
	}
	return nil
}

// checkHash reads the whole file.
func checkHash(name string, f io.Reader, want fileEntry) error {
	h := newHashes()
	block := make([]byte, min(blockSize, want.Bytes))
	for h.bytes < want.Bytes {
		n := min(int64(len(block)), want.Bytes-h.bytes)
		if _, err := io.ReadFull(f, block[:n]); err != nil {
			return reading(name, err)
		}
		at := h.bytes
		h.add(block[:n])
		crc, err := hex.DecodeString(want.Blocks[at/blockSize*8:][:8])
		if err != nil {
			return damaged(name, "%v", err)
		}
		if got := crc32.Checksum(block[:n], castagnoli); got != uint32(crc[0])<<24|uint32(crc[1])<<16|uint32(crc[2])<<8|uint32(crc[3]) {
			return damaged(name, "its hash differs, in bytes [%d:%d]", at, at+n)
		}
	}
	if got := h.entry(want.Name); got != want {
		return damaged(name, "its SHA-256 is %s, the manifest says %s", got.SHA256, want.SHA256)
	}
	return nil
}
