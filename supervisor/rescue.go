package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/troupe-train/troupe/checkpoint"
)

// A run writes its journal to a file that it holds open. When somebody removes or replaces save.dir in its middle, that
// file has no name any more: entries would go where nobody finds them. So after every entry of a step the run looks whether
// its journal is still where it belongs. If not, it puts the journal, which it still has, and a last checkpoint
// into save.dir, or beside it where something else has taken that place, and ends.

// rescued is what is put behind save.dir for the folder that a run falls back to.
const rescued = ".rescued"

// held reports whether the file that the journal is written to is the one at its path.
func (j *Journal) held() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	mine, err := j.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(j.path)
	return err == nil && os.SameFile(mine, there)
}

// move copies the journal into dir, where there must be none, and goes on there.
func (j *Journal) move(dir string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, checkpoint.JournalName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, io.NewSectionReader(j.file, 0, j.size))
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(path))
	}
	_ = j.file.Close() // all of it is in the new one
	j.path, j.file = path, f
	return nil
}

// Displaced is the error of a run whose save.dir was removed or replaced in its middle.
type Displaced struct {
	// Dir is save.dir, and Step the train step at which it was found.
	Dir  string
	Step int64
	// To is where the journal is now, and Checkpoint the last one, if there is one; Err is why not.
	To, Checkpoint string
	Err            error
}

func (d *Displaced) Error() string {
	text := fmt.Sprintf("save.dir %s was removed or replaced in the middle of the run, which was found at train step %d; the run ends", d.Dir, d.Step)
	switch {
	case d.To == "":
		return fmt.Sprintf("%s, and this step has not committed: %v", text, d.Err)
	case d.Checkpoint == "":
		return fmt.Sprintf("%s; its journal is in %s, and there is no checkpoint beside it: %v", text, d.To, d.Err)
	}
	again := "go on with --resume"
	if d.To != d.Dir {
		again += " --set save.dir=" + d.To
	}
	return fmt.Sprintf("%s; its journal is in %s, and its last state is %s: %s", text, d.To, d.Checkpoint, again)
}

func (d *Displaced) Unwrap() error { return d.Err }

// settle makes sure that the journal can be found, after what was written at a step. It moves the journal and the store
// if it must, and then asks the run to end with a checkpoint. It is called on the trainer's stream.
func (r *run) settle(step int64) error {
	if r.journal == nil || r.journal.held() {
		return nil
	}
	d := &Displaced{Dir: r.store.dir, Step: step}
	for _, dir := range []string{d.Dir, d.Dir + rescued} {
		if err := r.refuge(dir); err != nil {
			d.Err = errors.Join(d.Err, err)
			continue
		}
		d.To, d.Err = dir, nil
		break
	}
	if d.To == "" {
		return d
	}
	r.note(fmt.Sprintf("save.dir %s was removed or replaced, found at train step %d: the journal is in %s now, and the run ends with a checkpoint there", d.Dir, step, d.To))
	r.mu.Lock()
	r.displaced = d
	r.mu.Unlock()
	r.wind()
	return nil
}

// intact says whether the run, whose trainer has ended at a step, may go back to a checkpoint because of why: not if save.dir is
// not where it was. The error is that of the run then.
func (r *run) intact(step int64, why error) error {
	if err := r.settle(step); err != nil {
		return err
	}
	if err := r.displacement(why); err != why {
		return err
	}
	return nil
}

// refuge makes a folder the place of the journal and the checkpoints: the folder that the run has locked, or one that is empty.
func (r *run) refuge(dir string) error {
	if r.store.lock.Holds(dir) {
		return r.journal.move(dir) // only what was in it has gone
	}
	if err := checkpoint.Allow(dir, checkpoint.Fresh); err != nil {
		return err
	}
	lock, err := checkpoint.Acquire(dir)
	if err != nil {
		return err
	}
	if err := r.journal.move(dir); err != nil {
		return errors.Join(err, lock.Release())
	}
	old := r.store.lock
	r.store.dir, r.store.lock = dir, lock
	return old.Release()
}

// displacement is how a run ends whose save.dir may have been displaced, and that would end in a given way without that.
func (r *run) displacement(end error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.displaced
	switch {
	case d == nil:
		return end
	case end != nil:
		d.Err = end
	default:
		d.Err = r.store.unsaved
	}
	// The newest one may have gone with the folder, and its path may be that of nothing.
	if c := r.store.newest; c != "" && filepath.Dir(c) == filepath.Clean(d.To) {
		if _, err := os.Stat(c); err == nil {
			d.Checkpoint = c
		}
	}
	return d
}
