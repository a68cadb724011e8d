package main

import (
	"fmt"
	"os"

	"github.com/troupe-train/troupe/plan"
)

// loadJob reads a job file and applies the --set flags.
func loadJob(path string, set []string) (*plan.Job, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, usage(fmt.Errorf("job file: %w", err))
	}
	job, err := plan.Parse(path, data)
	if err != nil {
		return nil, usage(err)
	}
	for _, s := range set {
		if err := job.Set(s); err != nil {
			return nil, usage(err)
		}
	}
	return job, usage(job.Validate())
}
