package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
)

// failpoint is called before every change on disk, with the name of the change and the path of what
// is changed; for a rename that is the old path and the new. An error takes the place of the
// change. Tests set it, to fail or to die there.
var failpoint = func(point string, paths ...string) error { return nil }

// OnWrite has f asked before everything that is written to disk, for runs that find out whether they survive a disk
// that is full. An error takes the place of the change. It is called before any checkpoint is written.
func OnWrite(f func() error) {
	failpoint = func(point string, _ ...string) error {
		if point == pointRemove {
			return nil
		}
		return f()
	}
}

// The changes on disk.
const (
	pointMakeFolder = "make folder"
	pointCreate     = "create"
	pointWrite      = "write"
	pointSync       = "sync"
	pointSyncFolder = "sync folder"
	pointRename     = "rename"
	pointRemove     = "remove"
)

func makeFolder(path string) error {
	if err := failpoint(pointMakeFolder, path); err != nil {
		return err
	}
	return os.Mkdir(path, 0o755)
}

func rename(from, to string) error {
	if err := failpoint(pointRename, from, to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

func remove(path string) error {
	if err := failpoint(pointRemove, path); err != nil {
		return err
	}
	return os.Remove(path)
}

// syncFolder makes the names in a folder durable.
func syncFolder(path string) error {
	if err := failpoint(pointSyncFolder, path); err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil // folders cannot be synced there
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Append writes behind what is in a file, and makes it durable: for what a run keeps beside its checkpoints. OnWrite hears of it.
func Append(f *os.File, p []byte) error {
	if err := failpoint(pointWrite, f.Name()); err != nil {
		return err
	}
	if _, err := f.Write(p); err != nil {
		return err
	}
	if err := failpoint(pointSync, f.Name()); err != nil {
		return err
	}
	return f.Sync()
}

// blockSize is the bytes that are written, and hashed for themselves, at a time.
const blockSize = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hashes are what a manifest says of the contents of a file.
type hashes struct {
	bytes  int64
	sum    hash.Hash
	blocks []byte
}

func newHashes() *hashes { return &hashes{sum: sha256.New()} }

// add takes the next block: blockSize bytes, or fewer if it is the last.
func (h *hashes) add(block []byte) {
	h.bytes += int64(len(block))
	h.sum.Write(block)
	crc := binary.BigEndian.AppendUint32(nil, crc32.Checksum(block, castagnoli))
	h.blocks = hex.AppendEncode(h.blocks, crc)
}

func (h *hashes) entry(name string) fileEntry {
	return fileEntry{Name: name, Bytes: h.bytes, SHA256: hex.EncodeToString(h.sum.Sum(nil)), Blocks: string(h.blocks)}
}

// writer writes a new file in blocks and hashes it on the way.
type writer struct {
	path   string
	file   *os.File
	block  []byte
	hashes *hashes
}

func createFile(path string) (*writer, error) {
	if err := failpoint(pointCreate, path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	return &writer{path: path, file: f, block: make([]byte, 0, blockSize), hashes: newHashes()}, nil
}

func (w *writer) write(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), blockSize-len(w.block))
		w.block = append(w.block, p[:n]...)
		p = p[n:]
		if err := w.flush(blockSize); err != nil {
			return err
		}
	}
	return nil
}

// writeFloats writes little-endian float32.
func (w *writer) writeFloats(data []float32) error {
	for len(data) > 0 {
		n := min(len(data), (blockSize-len(w.block))/4)
		if n == 0 { // the header is a multiple of 8 bytes, so a block always ends between two elements
			panic("checkpoint: a block ends inside an element")
		}
		for _, x := range data[:n] {
			w.block = binary.LittleEndian.AppendUint32(w.block, math.Float32bits(x))
		}
		data = data[n:]
		if err := w.flush(blockSize); err != nil {
			return err
		}
	}
	return nil
}

// flush writes the block if it has at least size bytes.
func (w *writer) flush(size int) error {
	if len(w.block) < size {
		return nil
	}
	if err := failpoint(pointWrite, w.path); err != nil {
		return err
	}
	if _, err := w.file.Write(w.block); err != nil {
		return err
	}
	w.hashes.add(w.block)
	w.block = w.block[:0]
	return nil
}

// finish writes what is left, makes the file durable and closes it.
func (w *writer) finish() (fileEntry, error) {
	err := w.flush(1)
	if err == nil {
		err = failpoint(pointSync, w.path)
	}
	if err == nil {
		err = w.file.Sync()
	}
	if e := w.file.Close(); err == nil {
		err = e
	}
	return w.hashes.entry(filepath.Base(w.path)), err
}
