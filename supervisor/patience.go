package supervisor

import "time"

// patience is how long the trainer may try to write: half of the time after which it would be held to hang.
func (r *run) patience() time.Duration { return seconds(r.plan.Job.Supervisor.Deadline) / 2 }

// lastPatience is how long the last checkpoint of a run is tried again, at most, and the removal of those that it goes back behind.
const lastPatience = 5 * time.Second

// retryPause is the time between two tries to write.
const retryPause = 50 * time.Millisecond

// retry tries to write until that works, or patience or what it is for is over. told hears of the first failure, if there is
// another try.
func retry(patience time.Duration, over func() bool, write func() error, told func(error)) error {
	began := time.Now()
	for tries := 0; ; tries++ {
		err := write()
		if err == nil || time.Since(began)+retryPause > patience || over() {
			return err
		}
		if tries == 0 {
			told(err)
		}
		time.Sleep(retryPause)
	}
}
