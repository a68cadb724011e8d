package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
)

// Suffixes of a step's folder that is not, or no longer, a checkpoint.
const (
	suffixTemp     = ".tmp"      // being written
	suffixReplaced = ".replaced" // was there when the step was written again; a checkpoint if the step itself is not there
	suffixRemoved  = ".removed"  // being removed
)

var stepName = regexp.MustCompile(`^step-([0-9]{8,19})(\.tmp|\.replaced|\.removed)?$`)

func stepPath(dir string, step int64, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("step-%08d%s", step, suffix))
}

// parseStep undoes stepPath.
func parseStep(name string) (step int64, suffix string, ok bool) {
	m := stepName.FindStringSubmatch(name)
	if m == nil {
		return 0, "", false
	}
	step, err := strconv.ParseInt(m[1], 10, 64)
	return step, m[2], err == nil && stepPath("", step, m[2]) == name
}

// JournalName is the file beside the checkpoints in which a run keeps the ledger of its steps. It is of the run,
// and no checkpoint: Resume leaves it, Overwrite removes it.
const JournalName = "journal.log"

// entry is a folder of ours.
type entry struct {
	step   int64
	suffix string
	path   string
}

// scan lists the folders of ours in dir, oldest first and for equal steps the step itself first,
// and the names that are not ours. The journal is neither.
func scan(dir string) (ours []entry, foreign []string, err error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range names {
		step, suffix, ok := parseStep(d.Name())
		if ok && d.IsDir() {
			ours = append(ours, entry{step, suffix, filepath.Join(dir, d.Name())})
		} else if d.Name() != JournalName || !d.Type().IsRegular() {
			foreign = append(foreign, d.Name())
		}
	}
	sort.Slice(ours, func(i, j int) bool {
		return ours[i].step < ours[j].step || ours[i].step == ours[j].step && ours[i].suffix < ours[j].suffix
	})
	return ours, foreign, nil
}

// candidates are the folders in dir that may be checkpoints, oldest first. One that was replaced
// counts where the step itself is not there.
func candidates(dir string) ([]entry, error) {
	ours, _, err := scan(dir)
	if err != nil {
		return nil, err
	}
	var steps []entry
	for _, e := range ours {
		switch e.suffix {
		case "":
			steps = append(steps, e)
		case suffixReplaced:
			if n := len(steps); n == 0 || steps[n-1].step != e.step {
				steps = append(steps, e)
			}
		}
	}
	return steps, nil
}

// contents are the names in a folder of ours. What is no part of a checkpoint is an error.
func contents(path string) ([]string, error) {
	files, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		if !f.Type().IsRegular() || f.Name() != manifestName && !shardName.MatchString(f.Name()) {
			return nil, fmt.Errorf("%s holds %s, which is no part of a checkpoint", path, f.Name())
		}
		names = append(names, f.Name())
	}
	return names, nil
}

// removeStep removes a folder of ours, if it is there, and nothing that is not ours. It is first
// given a name that no reader looks for, durably, so that half a checkpoint never has the name of
// one.
func removeStep(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	step, suffix, ok := parseStep(filepath.Base(path))
	if !ok || !info.IsDir() {
		return fmt.Errorf("%s is not the folder of a checkpoint", path)
	}
	names, err := contents(path)
	if err != nil {
		return err
	}
	if suffix != suffixTemp && suffix != suffixRemoved {
		removed := stepPath(filepath.Dir(path), step, suffixRemoved)
		if err := removeStep(removed); err != nil {
			return err
		}
		if err := rename(path, removed); err != nil {
			return err
		}
		if err := syncFolder(filepath.Dir(path)); err != nil {
			return err
		}
		path = removed
	}
	for _, name := range names {
		if err := remove(filepath.Join(path, name)); err != nil {
			return err
		}
	}
	return remove(path)
}

// makeAll makes dir and what is missing above it, durably.
func makeAll(dir string) error {
	info, err := os.Stat(dir)
	if err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a folder", dir)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeAll(parent); err != nil {
		return err
	}
	if err := makeFolder(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(parent)
}
