package checkpoint

import "fmt"

// Report is the state of one file of a checkpoint, or of the whole where Path is its folder.
type Report struct {
	Step  int64
	Path  string
	Bytes int64
	// Err is nil if the file is what was committed.
	Err error
}

func (r Report) String() string {
	if r.Err != nil {
		return r.Err.Error()
	}
	return fmt.Sprintf("%s is ok, %d bytes", r.Path, r.Bytes)
}

// Check reads every file of every checkpoint in dir, or of the one that dir itself is, and reports
// on each, oldest step first. The error is ErrNone where there is nothing to check.
func Check(dir string) ([]Report, error) {
	steps, err := locate(dir)
	if err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("%w in %s", ErrNone, dir)
	}
	var reports []Report
	for _, s := range steps {
		c := examine(s.path, func(f finding) bool {
			reports = append(reports, Report{s.step, f.path, f.bytes, f.err})
			return true
		})
		c.Close()
	}
	return reports, nil
}
