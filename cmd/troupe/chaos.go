package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/device/cpu"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/sim"
	"github.com/troupe-train/troupe/supervisor"
)

func chaosCommand() *cobra.Command {
	var o chaosFlags
	c := &cobra.Command{
		Use:   "chaos JOB.yaml",
		Short: "Run random schedules of faults against a job in the simulator",
		Long: "Chaos runs the machines of a job on a virtual clock, network and disk. Every seed is a random schedule of faults:\n" +
			"actors and nodes die, hang and pause, messages are lost, doubled, bent and held back, disks fill, and micro-batches\n" +
			"are shifted between data ranks. After each run the weights, the committed steps and the samples in them must be\n" +
			"those of the run without faults.\n" +
			"Operations only hash what they read, so any job is fast; with --kernels they compute (use a tiny model).\n" +
			"Lives begin anew, and the job goes back to its checkpoint, as often as it takes: how soon a run gives up is not what is\n" +
			"tried here, so the limits and times in the section supervisor are of no effect, but for mirror.\n" +
			"A schedule that fails is shrunk to the fewest faults and printed with the command that runs it again.",
		Example: "  troupe chaos examples/gosrc.yaml --seeds 1:10000 --set layout.pipeline=3 --set layout.data=2 --nodes 3\n" +
			"  troupe chaos examples/gosrc.yaml --seeds 7 --fault faults.yaml",
		Args: takes("one job file"),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
	}
	f := c.Flags()
	f.StringArrayVar(&o.set, "set", nil, "set a key of the job; may be repeated")
	f.StringVar(&o.seeds, "seeds", "1:100", "a seed, or the first and the last")
	f.Int64Var(&o.steps, "steps", 3, "training steps of a run")
	f.IntVar(&o.nodes, "nodes", 3, "node processes besides the one with the trainer")
	f.IntVar(&o.spares, "spares", 1, "nodes more, without actors")
	f.BoolVar(&o.kernels, "kernels", false, "compute with the kernels of the CPU")
	f.StringVar(&o.faults, "fault", "", "a file with the faults to run instead of random ones (docs/faults.md)")
	f.BoolVar(&o.trace, "trace", false, "print every event; for one seed")
	f.BoolVar(&o.json, "json", false, "print one JSON object as the last line of standard output")
	return c
}

type chaosFlags struct {
	set                  []string
	seeds, faults        string
	steps                int64
	nodes, spares        int
	kernels, trace, json bool
}

// chaosResult is what chaos prints with --json.
type chaosResult struct {
	Seeds            uint64  `json:"seeds"`
	Struck           int     `json:"faults_struck"`
	Restarts         int     `json:"restarts"`
	Resumes          int     `json:"resumes"`
	Seconds          float64 `json:"seconds"`
	SeedsPerSecond   float64 `json:"seeds_per_second"`
	WeightsSHA256    string  `json:"weights_sha256"`
	EventsWithoutAny int     `json:"events_without_faults"`
}

func (o *chaosFlags) run(c *cobra.Command, path string) error {
	first, last, err := seedRange(o.seeds)
	if err != nil {
		return usage(err)
	}
	switch {
	case o.steps < 1:
		return usage(fmt.Errorf("--steps %d; legal is 1 and more", o.steps))
	case o.nodes < 1:
		return usage(fmt.Errorf("--nodes %d; legal is 1 and more", o.nodes))
	case o.spares < 0:
		return usage(fmt.Errorf("--spares %d; legal is 0 and more", o.spares))
	}
	if o.trace && first != last {
		return usage(fmt.Errorf("--trace with %d seeds; it is for one", last-first+1))
	}
	faults, err := loadFaults(o.faults, c.ErrOrStderr())
	if err != nil {
		return err
	}
	bench, end, err := o.bench(path)
	if err != nil {
		return err
	}
	defer end()
	if err := bench.Check(faults); err != nil {
		return usage(fmt.Errorf("--fault %s: %w", o.faults, err))
	}
	for _, key := range idle(bench.Plan().Job.Supervisor, plan.Defaults().Supervisor) {
		fmt.Fprintf(c.ErrOrStderr(), "note: supervisor.%s is of no effect in chaos, which has limits and times of its own\n", key)
	}

	out := c.OutOrStdout()
	r := chaosResult{WeightsSHA256: bench.Weights(), EventsWithoutAny: bench.Events()}
	began := time.Now()
	for seed := first; ; seed++ {
		if c.Context().Err() != nil {
			return context.Cause(c.Context())
		}
		schedule := faults
		if o.faults == "" {
			schedule = bench.Schedule(seed)
		}
		outcome := o.once(c, bench, seed, schedule)
		if outcome.Violation != nil {
			return o.violation(c, path, bench, outcome)
		}
		r.Seeds++
		r.Struck, r.Restarts, r.Resumes = r.Struck+outcome.Struck, r.Restarts+outcome.Restarts, r.Resumes+outcome.Resumes
		if seed == last {
			if o.faults != "" {
				for _, f := range outcome.Missed {
					fmt.Fprintln(c.ErrOrStderr(), f.Unstruck())
				}
			}
			break
		}
	}
	r.Seconds = time.Since(began).Seconds()
	r.SeedsPerSecond = float64(r.Seeds) / r.Seconds
	if o.json {
		return json.NewEncoder(out).Encode(r)
	}
	_, err = fmt.Fprintf(out, "%d schedules, equal weights in all: %d faults struck, %d lives began anew, %d returns to a checkpoint; %.0f schedules/s\nweights %s\n",
		r.Seeds, r.Struck, r.Restarts, r.Resumes, r.SeedsPerSecond, r.WeightsSHA256)
	return err
}

func (o *chaosFlags) once(c *cobra.Command, b *sim.Bench, seed uint64, faults []fault.Fault) *sim.Outcome {
	if o.trace {
		return b.Run(seed, faults, c.OutOrStdout())
	}
	return b.Run(seed, faults, nil)
}

// bench is the job made ready, and the function that ends it.
func (o *chaosFlags) bench(path string) (*sim.Bench, func(), error) {
	job, err := loadJob(path, o.set)
	if err != nil {
		return nil, nil, err
	}
	t, err := supervisor.OpenTokenizer(job)
	if err != nil {
		return nil, nil, refused(err)
	}
	m, err := supervisor.BuildModel(job, t.Size())
	if err != nil {
		return nil, nil, usage(err)
	}
	p, err := plan.New(job, m, plan.Options{Nodes: o.nodes})
	if err != nil {
		return nil, nil, usage(err)
	}
	if err := p.Fits(); err != nil {
		return nil, nil, usage(err)
	}
	d := cpu.New(cpu.Options{Float: device.F32})
	b, err := sim.NewBench(sim.BenchConfig{
		Plan: p, Device: d, Nodes: o.nodes + 1 + o.spares, Network: sim.Unkind, Stubs: !o.kernels,
		Rounds: supervisor.Rounds{Until: o.steps, EvaluateEvery: 2, SnapshotEvery: 2, Evaluates: len(p.Held) > 0},
	})
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	return b, func() { d.Close() }, nil
}

// idle are the keys of a job that say when a run gives up, or how long it waits, and are not those by default.
func idle(s, usual plan.Supervisor) (keys []string) {
	for _, k := range []struct {
		key string
		set bool
	}{
		{"heartbeat", s.Heartbeat != usual.Heartbeat}, {"suspect", s.Suspect != usual.Suspect}, {"deadline", s.Deadline != usual.Deadline},
		{"join", s.Join != usual.Join}, {"restarts", s.Restarts != usual.Restarts}, {"window", s.Window != usual.Window},
		{"backoff", s.Backoff != usual.Backoff}, {"resumes", s.Resumes != usual.Resumes},
	} {
		if k.set {
			keys = append(keys, k.key)
		}
	}
	return keys
}

// violation prints the story of a run that failed, shrunk, and how to see it again.
func (o *chaosFlags) violation(c *cobra.Command, path string, b *sim.Bench, bad *sim.Outcome) error {
	small := b.Shrink(bad)
	fmt.Fprintln(c.ErrOrStderr(), small)
	file := fmt.Sprintf("troupe-chaos-%d.yaml", small.Seed)
	again := []string{"troupe", "chaos", path, "--seeds", fmt.Sprint(small.Seed), "--fault", file,
		"--steps", fmt.Sprint(o.steps), "--nodes", fmt.Sprint(o.nodes), "--spares", fmt.Sprint(o.spares)}
	for _, s := range o.set {
		again = append(again, "--set", strconv.Quote(s))
	}
	if o.kernels {
		again = append(again, "--kernels")
	}
	var text strings.Builder
	for _, f := range small.Faults {
		fmt.Fprintf(&text, "- %q\n", f.String())
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		return err
	}
	return fmt.Errorf("seed %d in %s: %w; again: %s", small.Seed, build(debug.ReadBuildInfo()), small.Violation, strings.Join(again, " "))
}

// seedRange parses "7" and "1:10000".
func seedRange(s string) (first, last uint64, err error) {
	a, b, two := strings.Cut(s, ":")
	if !two {
		b = a
	}
	first, err1 := strconv.ParseUint(a, 10, 64)
	last, err2 := strconv.ParseUint(b, 10, 64)
	if err1 != nil || err2 != nil || first > last {
		return 0, 0, fmt.Errorf("--seeds %q; legal is a number such as 7, or the first and the last such as 1:10000", s)
	}
	return first, last, nil
}
