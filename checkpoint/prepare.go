package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Mode is what a run does with the checkpoints that are there when it starts.
type Mode uint8

const (
	// Fresh starts at step 0 and refuses a folder that is not empty.
	Fresh Mode = iota
	// Resume goes on from the newest complete checkpoint.
	Resume
	// Overwrite removes the checkpoints that are there and starts at step 0. It refuses a folder that
	// holds anything else.
	Overwrite
)

func (m Mode) String() string {
	return [...]string{"fresh", "resume", "overwrite"}[m]
}

// ErrNone is the error where a complete checkpoint is due and there is none.
var ErrNone = errors.New("no complete checkpoint")

// Prepare makes dir ready for a run, and makes it if it is not there. It refuses before anything
// starts what would fail at the first save: a folder that cannot be written. With Resume it removes
// what killed writers have left. Where Resume finds no complete checkpoint the error is ErrNone,
// and dir is as it was.
func Prepare(dir string, mode Mode) error {
	if dir == "" {
		return errors.New("save.dir is empty: give a folder")
	}
	ours, err := allow(dir, mode)
	if err == nil && mode == Overwrite {
		err = removeJournal(dir)
	}
	for i := 0; err == nil && i < len(ours); i++ {
		err = settle(dir, ours[i], mode)
	}
	if err == nil {
		err = syncFolder(dir)
	}
	if err != nil {
		return fmt.Errorf("save.dir %s: %w", dir, err)
	}
	return nil
}

// Allow says whether Prepare would refuse. It makes dir if it is not there, and removes nothing.
func Allow(dir string, mode Mode) error {
	if _, err := allow(dir, mode); err != nil {
		return fmt.Errorf("save.dir %s: %w", dir, err)
	}
	return nil
}

// allow returns what is in dir, if the mode is legal for it.
func allow(dir string, mode Mode) ([]entry, error) {
	if mode == Resume {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: there is no such folder", ErrNone)
		}
	}
	if err := makeAll(dir); err != nil {
		return nil, err
	}
	ours, foreign, err := scan(dir)
	if err != nil {
		return nil, err
	}
	journal, err := journalIn(dir)
	if err != nil {
		return nil, err
	}
	switch mode {
	case Fresh:
		if err := refuseFull(ours, append(journal, foreign...), len(journal) > 0); err != nil {
			return nil, err
		}
	case Resume:
		if err := requireComplete(dir); err != nil {
			return nil, err
		}
	case Overwrite:
		if len(foreign) > 0 {
			return nil, fmt.Errorf("%s in it is no checkpoint, so it is not overwritten; choose another folder", several(foreign))
		}
		for _, e := range ours {
			if _, err := contents(e.path); err != nil {
				return nil, fmt.Errorf("%w, so it is not overwritten", err)
			}
		}
	default:
		panic(fmt.Sprintf("checkpoint: unknown mode %d", mode))
	}
	return ours, checkWritable(dir)
}

// settle brings a folder that is there into order: with Overwrite it is removed, with Resume it is
// removed unless it is or may be a checkpoint.
func settle(dir string, e entry, mode Mode) error {
	if mode == Resume {
		switch e.suffix {
		case "":
			return nil
		case suffixReplaced:
			final := stepPath(dir, e.step, "")
			if _, err := os.Lstat(final); errors.Is(err, fs.ErrNotExist) {
				return rename(e.path, final)
			}
			if _, err := glance(final); err != nil {
				return nil // the step itself is damaged: keep both
			}
		}
	}
	return removeStep(e.path)
}

// journalIn is the name of the journal if there is one.
func journalIn(dir string) ([]string, error) {
	switch info, err := os.Lstat(filepath.Join(dir, JournalName)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, nil // it is not ours
	}
	return []string{JournalName}, nil
}

// removeJournal removes it first: a ledger without its checkpoints would speak of steps that are lost.
func removeJournal(dir string) error {
	journal, err := journalIn(dir)
	for _, name := range journal {
		err = errors.Join(err, remove(filepath.Join(dir, name)))
	}
	return err
}

func refuseFull(ours []entry, foreign []string, journal bool) error {
	if len(ours) == 0 && len(foreign) == 0 {
		return nil
	}
	if len(ours) == 0 && journal {
		return fmt.Errorf("not empty: it holds the %s of a run that has no checkpoint; --overwrite removes it and starts afresh", several(foreign))
	}
	if len(ours) == 0 {
		return fmt.Errorf("not empty: it holds %s; choose an empty folder", several(foreign))
	}
	var names []string
	for i := len(ours) - 1; i >= 0; i-- { // the newest first
		names = append(names, stepPath("", ours[i].step, ours[i].suffix))
	}
	return fmt.Errorf("not empty: it holds %s; --resume goes on from the newest checkpoint, --overwrite removes them and starts afresh", several(append(names, foreign...)))
}

func requireComplete(dir string) error {
	entries, err := List(dir)
	if err != nil {
		return err
	}
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].Err == nil {
			return nil
		}
	}
	if n := len(entries); n > 0 {
		return fmt.Errorf("%w: %w", ErrNone, entries[n-1].Err)
	}
	return ErrNone
}

func several(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

func checkWritable(dir string) error {
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Prune removes complete checkpoints until only the newest keep are left; 0 keeps all. The newest
// one is never removed, and folders that are not complete are left alone.
func Prune(dir string, keep int) error {
	if keep < 0 {
		return fmt.Errorf("prune checkpoints in %s: keep %d; legal is 1 and more, or 0 for all", dir, keep)
	}
	if keep == 0 {
		return nil
	}
	entries, err := List(dir)
	if err != nil {
		return fmt.Errorf("prune checkpoints in %s: %w", dir, err)
	}
	kept := 0
	for i := len(entries) - 1; i >= 0; i-- {
		e := entries[i]
		if e.Err != nil {
			continue
		}
		if kept++; kept <= keep {
			continue
		}
		if err := removeStep(e.Path); err != nil {
			return fmt.Errorf("prune checkpoints in %s: %w", dir, err)
		}
	}
	return nil
}

// Forget removes the checkpoints of more than that many steps, whole or not. The newest goes first, so that what is
// left when a process is killed in the middle of it is in order.
func Forget(dir string, steps int64) error {
	found, err := candidates(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for i := len(found) - 1; err == nil && i >= 0 && found[i].step > steps; i-- {
		err = removeStep(found[i].path)
	}
	if err != nil {
		return fmt.Errorf("remove checkpoints after step %d in %s: %w", steps, dir, err)
	}
	return nil
}

// Entry is a checkpoint in a folder, or what should be one.
type Entry struct {
	Step int64
	Path string
	// Err is nil if the checkpoint is complete: the manifest is in order and every file is there with
	// its size. Contents are not read; Open and Check do that.
	Err error
	// Meta says what it is of, if it is complete.
	Meta Meta
}

// List gives the checkpoints in dir, oldest first. A folder that does not exist has none.
func List(dir string) ([]Entry, error) {
	steps, err := candidates(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, s := range steps {
		e := Entry{Step: s.step, Path: s.path}
		m, err := glance(s.path)
		if e.Err = err; err == nil {
			e.Meta = m.meta()
		}
		entries = append(entries, e)
	}
	return entries, nil
}
