package checkpoint

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"

	"github.com/troupe-train/troupe/checkpoint/safetensors"
)

// Writer writes one checkpoint. Nothing of it can be seen before Commit. After an error what was
// written is removed and the Writer is of no more use.
type Writer struct {
	meta        Meta
	dir         string
	temp, final string

	mu    sync.Mutex
	index *index
	files map[int]fileEntry
	err   error // the first error, or errDone
}

// Create begins a checkpoint under dir, which is made if it is not there. What an earlier writer
// of the same step has left unfinished is removed.
func Create(dir string, meta Meta) (*Writer, error) {
	w := &Writer{
		meta: meta, dir: dir, temp: stepPath(dir, meta.Step, suffixTemp), final: stepPath(dir, meta.Step, ""),
		index: newIndex(meta), files: map[int]fileEntry{},
	}
	if err := meta.check(); err != nil {
		return nil, w.wrap(err)
	}
	if err := makeAll(dir); err != nil {
		return nil, w.wrap(err)
	}
	if err := removeStep(w.temp); err != nil {
		return nil, w.wrap(err)
	}
	if err := makeFolder(w.temp); err != nil {
		return nil, w.wrap(err)
	}
	return w, nil
}

// Path is where the checkpoint is after Commit.
func (w *Writer) Path() string { return w.final }

func (w *Writer) wrap(err error) error {
	return fmt.Errorf("save checkpoint of step %d in %s: %w", w.meta.Step, w.dir, err)
}

// maxFile is the highest number of a file.
const maxFile = 999_999_999

// Add writes the pieces into file number file, which no other call has used, and makes it durable.
// Pieces come in any order; empty ones are left out, and so is a file without pieces. The pieces
// can be changed when Add returns. It is safe to call Add from several goroutines.
func (w *Writer) Add(file int, pieces []Piece) error {
	if err := w.claim(file); err != nil {
		return err
	}
	entry, places, err := w.writeFile(file, pieces)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	for i := 0; i < len(places) && err == nil; i++ {
		err = w.index.add(places[i].key, places[i].place)
	}
	if err != nil {
		return w.fail(err)
	}
	w.files[file] = entry
	return nil
}

func (w *Writer) claim(file int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if file < 0 || file > maxFile {
		return w.fail(fmt.Errorf("file %d; legal is 0 to %d", file, maxFile))
	}
	if _, taken := w.files[file]; taken {
		return w.fail(fmt.Errorf("file %d was written before", file))
	}
	w.files[file] = fileEntry{}
	return nil
}

// fail removes what was written and remembers why. w.mu is held.
func (w *Writer) fail(err error) error {
	w.err = w.wrap(err)
	// What cannot be removed stays under a name that no reader takes for a checkpoint.
	_ = removeStep(w.temp)
	return w.err
}

type placed struct {
	key
	place
}

func (w *Writer) writeFile(file int, pieces []Piece) (fileEntry, []placed, error) {
	pieces = slices.DeleteFunc(slices.Clone(pieces), func(p Piece) bool { return len(p.Data) == 0 })
	if len(pieces) == 0 {
		return fileEntry{}, nil, nil
	}
	// The order in the file depends on the pieces alone, so that equal states are equal files.
	sort.SliceStable(pieces, func(i, j int) bool {
		p, q := pieces[i], pieces[j]
		if p.Kind != q.Kind {
			return slices.Index(w.meta.Kinds, p.Kind) < slices.Index(w.meta.Kinds, q.Kind)
		}
		if p.Name != q.Name {
			return p.Name < q.Name
		}
		return p.Lo < q.Lo
	})
	var h safetensors.Header
	for _, p := range pieces {
		if p.Lo < 0 || p.Lo > math.MaxInt-len(p.Data) {
			return fileEntry{}, nil, fmt.Errorf("a piece of %s begins at element %d", p.Name, p.Lo)
		}
		hi := p.Lo + len(p.Data)
		if err := w.index.check(key{p.Kind, p.Name}, p.Lo, hi); err != nil {
			return fileEntry{}, nil, err
		}
		h.Tensors = append(h.Tensors, safetensors.Tensor{Name: tensorName(p.Kind, p.Name, p.Lo, hi), DType: safetensors.F32, Shape: []int{len(p.Data)}})
	}
	if err := h.Place(); err != nil {
		return fileEntry{}, nil, err
	}
	head, err := h.Marshal()
	if err != nil {
		return fileEntry{}, nil, err
	}
	f, err := createFile(filepath.Join(w.temp, fmt.Sprintf("shard-%05d.safetensors", file)))
	if err != nil {
		return fileEntry{}, nil, err
	}
	err = f.write(head)
	places := make([]placed, len(pieces))
	for i, p := range pieces {
		places[i] = placed{key{p.Kind, p.Name}, place{lo: p.Lo, hi: p.Lo + len(p.Data), file: file, offset: int64(len(head)) + h.Tensors[i].Begin}}
		if err == nil {
			err = f.writeFloats(p.Data)
		}
	}
	if err != nil {
		f.file.Close()
		return fileEntry{}, nil, err
	}
	entry, err := f.finish()
	return entry, places, err
}

// Commit checks that the pieces are complete, writes the manifest and gives the checkpoint its
// name. When it returns without error, the checkpoint survives a power cut. A checkpoint of the
// same step that was there before is replaced.
func (w *Writer) Commit() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if err := w.index.complete(); err != nil {
		return w.fail(err)
	}
	if err := w.writeManifest(); err != nil {
		return w.fail(err)
	}
	if err := publish(w.dir, w.meta.Step); err != nil {
		return w.fail(err)
	}
	w.err = w.wrap(errDone)
	return nil
}

var errDone = fmt.Errorf("it has been committed or aborted")

// Abort removes what was written. After Commit or an error it does nothing.
func (w *Writer) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		_ = w.fail(errDone)
	}
}

func (w *Writer) writeManifest() error {
	var numbers []int
	for n, e := range w.files {
		if e.Name != "" {
			numbers = append(numbers, n)
		}
	}
	sort.Ints(numbers)
	var files []fileEntry
	for _, n := range numbers {
		files = append(files, w.files[n])
	}
	text, err := newManifest(w.meta, files).marshal()
	if err != nil {
		return err
	}
	f, err := createFile(filepath.Join(w.temp, manifestName))
	if err != nil {
		return err
	}
	if err := f.write(text); err != nil {
		f.file.Close()
		return err
	}
	_, err = f.finish()
	return err
}

// publish gives the finished folder of a step its name.
func publish(dir string, step int64) error {
	temp, final, replaced := stepPath(dir, step, suffixTemp), stepPath(dir, step, ""), stepPath(dir, step, suffixReplaced)
	if err := syncFolder(temp); err != nil {
		return err
	}
	_, err := os.Lstat(final)
	before := err == nil
	if before {
		// Folders cannot be exchanged in one go everywhere. Between the two renames the step that
		// was there before has the name that readers look for when the step itself is not there.
		if err := removeStep(replaced); err != nil {
			return err
		}
		if err := rename(final, replaced); err != nil {
			return err
		}
	}
	if err := rename(temp, final); err != nil {
		if before {
			_ = os.Rename(replaced, final)
		}
		return err
	}
	if err := syncFolder(dir); err != nil {
		return err
	}
	if before {
		// The new one is safe; what is left of the old one is removed by the next Prepare at the
		// latest.
		_ = removeStep(replaced)
	}
	return nil
}
