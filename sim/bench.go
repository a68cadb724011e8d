package sim

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/troupe-train/troupe/device"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/plan/fault"
	"github.com/troupe-train/troupe/supervisor"
)

// Bench runs one plan under faults, again and again, and holds every run against the one without.
type Bench struct {
	config BenchConfig
	want   map[plan.Round]string // what comes of each round
	hash   string                // of the weights at the end
	rounds []plan.Round          // in order, of the run without faults
	events int
	// bounds are what actors may need; nil in a bench with stubs.
	bounds *bounds
}

// BenchConfig says what is run.
type BenchConfig struct {
	Plan   *plan.Plan
	Device device.Device
	// Rounds are those of the run. There is a snapshot at the end in any case.
	Rounds supervisor.Rounds
	// Source may be nil: then the text is Noise.
	Source supervisor.Source
	// Nodes is the number of nodes, node 0 included. Those without actors are spares.
	Nodes   int
	Network Network
	// Stubs has every operation only hash what it reads, instead of the kernels. Equal hashes still prove the
	// protocol, and runs are many times as fast.
	Stubs bool
	// FaultsMax is the most faults of a random schedule; 0 stands for 4.
	FaultsMax int
	// Plant is a mistake that tests plant.
	Plant Plant
}

// Outcome is what has come of a run under faults.
type Outcome struct {
	Seed   uint64
	Faults []fault.Fault
	// Violation is what the run did that it must not; nil if all is well.
	Violation error
	// Shifted is the number of steps that were committed by other shares than the plan's.
	Shifted int
	// Struck faults of Faults struck, and Missed did not. Restarts are the lives that began, Resumes the returns to a checkpoint.
	Struck, Restarts, Resumes int
	Missed                    []fault.Fault
	// Events and Time are those of the simulation.
	Events int
	Time   time.Duration
	// Weights is the hash of the weights at the end.
	Weights string
	// Decisions are those of the recovery.
	Decisions []string
	// Lives are the incarnations at the end, of the actors that began a new life.
	Lives map[plan.ActorID]int
}

// String is the whole story of a run that went wrong, with what is needed to see it again.
func (o *Outcome) String() string {
	s := fmt.Sprintf("seed %d: ", o.Seed)
	if o.Violation == nil {
		return s + fmt.Sprintf("equal weights, %d of %d faults struck, %d restarts, %d resumes", o.Struck, len(o.Faults), o.Restarts, o.Resumes)
	}
	s += o.Violation.Error() + "\nfaults:\n" + fault.Format(o.Faults)
	if len(o.Decisions) > 0 {
		s += "decisions:\n"
		for _, d := range o.Decisions {
			s += d + "\n"
		}
	}
	return s
}

// attemptsMax is the most returns to a checkpoint of one run.
const attemptsMax = 8

// NewBench runs the plan without faults.
func NewBench(c BenchConfig) (*Bench, error) {
	if c.Source == nil {
		c.Source = Noise{Vocab: c.Plan.Model.Vocab}
	}
	if c.FaultsMax == 0 {
		c.FaultsMax = 4
	}
	b := &Bench{config: c}
	plain := c
	plain.Plant = 0
	run := b.newRun(plain, 0, nil, nil)
	if err := run.all(); err != nil {
		return nil, fmt.Errorf("sim: without faults: %w", err)
	}
	b.want, b.hash, b.rounds, b.events = run.outcomes, run.book.weights(), run.order, run.out.Events
	if !c.Stubs {
		b.bounds = &bounds{plan: c.Plan, known: map[plan.Shares]map[plan.ActorID]bound{}}
	}
	return b, nil
}

// Plan is what is run.
func (b *Bench) Plan() *plan.Plan { return b.config.Plan }

// Weights is the hash that the weights must have at the end.
func (b *Bench) Weights() string { return b.hash }

// Events is the number of events of the run without faults.
func (b *Bench) Events() int { return b.events }

// Chaos runs the random schedule of a seed.
func (b *Bench) Chaos(seed uint64) *Outcome { return b.Run(seed, b.Schedule(seed), nil) }

// Check says whether faults can strike in a simulation.
func (b *Bench) Check(faults []fault.Fault) error {
	for i, f := range faults {
		why := ""
		switch {
		case f.Kind == fault.JumpClock && f.Node != 0:
			why = "in a simulation it is node 0 alone that decides by a clock"
		case (f.Kind == fault.KillNode || f.Kind == fault.PauseNode) && f.Node == 0:
			why = "a simulation ends with node 0, where the trainer is supervised"
		}
		if why != "" {
			return fmt.Errorf("fault %d (%s): %s", i+1, f, why)
		}
	}
	return fault.Check(faults, b.config.Plan, b.nodes())
}

// nodes is how many there are.
func (b *Bench) nodes() int { return max(b.config.Nodes, nodesOf(b.config.Plan)+1) }

// Run runs with given faults. The seed is that of the network and of all that is left to chance. trace,
// if not nil, is written a line for each event.
func (b *Bench) Run(seed uint64, faults []fault.Fault, trace io.Writer) *Outcome {
	r := b.newRun(b.config, seed, faults, trace)
	err := r.all()
	r.out.Weights, r.out.Missed = r.book.weights(), r.faults.Missed()
	if err == nil {
		err = b.judge(r)
	}
	r.out.Violation = err
	return r.out
}

// judge holds a run that has ended against the one without faults.
func (b *Bench) judge(r *run) error {
	if r.out.Weights != b.hash {
		return fmt.Errorf("the weights are %.16s, and %.16s without faults", r.out.Weights, b.hash)
	}
	for _, round := range b.rounds {
		got, ok := r.outcomes[round]
		switch {
		case !ok:
			return fmt.Errorf("%s has not committed", round)
		case got != b.want[round]:
			return fmt.Errorf("%s gave %s, and %s without faults", round, got, b.want[round])
		}
	}
	batch := int64(b.config.Plan.Job.Train.Batch)
	for i := b.config.Rounds.First * batch; i < b.config.Rounds.Until*batch; i++ {
		if n := r.committed[i]; n != 1 {
			return fmt.Errorf("sample %d is in %d committed steps", i, n)
		}
	}
	return nil
}

// run is one run of a bench: one simulation, and one more for each return to a checkpoint.
type run struct {
	config BenchConfig
	bounds *bounds
	faults *fault.Matcher
	disks  *Disks
	trace  io.Writer
	out    *Outcome
	book   book
	plan   *plan.Plan
	rounds supervisor.Rounds
	// outcomes are what has come of committed rounds, and order is theirs; committed counts samples in committed steps, and
	// fed those that the present life of the trainer has read.
	outcomes  map[plan.Round]string
	order     []plan.Round
	committed map[int64]int
	fed       map[int64]int
	attempt   int
	// begun counts the lives that began anew.
	begun int
}

// book is where the state of shards goes at a snapshot, and comes from at a resume.
type book interface {
	// begin is told of the plan that is run now.
	begin(p *plan.Plan)
	// snapshot is the step of the last one; -1 before the first.
	snapshot() int64
	weights() string
	// trainer is the executor of a life of the trainer.
	trainer(r *run, a *device.Account) (executor, error)
	// actor is that of a life of another.
	actor(r *run, l Life) (Actor, error)
}

func (b *Bench) newRun(c BenchConfig, seed uint64, faults []fault.Fault, trace io.Writer) *run {
	r := &run{
		config: c, bounds: b.bounds, faults: fault.NewMatcher(faults), disks: &Disks{}, trace: trace, out: &Outcome{Seed: seed, Faults: faults},
		outcomes: map[plan.Round]string{}, committed: map[int64]int{},
	}
	if c.Stubs {
		r.book = &stubBook{disks: r.disks, step: -1}
	} else {
		r.book = &kernelBook{shelf: shelf{disks: r.disks, step: -1}}
	}
	return r
}

// all runs until the run has ended for good.
func (r *run) all() error {
	for r.attempt = 0; ; r.attempt++ {
		err := r.once()
		if !errors.Is(err, ErrResume) {
			return err
		}
		if r.out.Resumes++; r.out.Resumes > attemptsMax {
			return fmt.Errorf("sim: %d returns to a checkpoint", attemptsMax)
		}
	}
}

// once runs one simulation, from the last snapshot if there is one.
func (r *run) once() error {
	c := r.config
	r.plan, r.rounds = c.Plan, c.Rounds
	if step := r.book.snapshot(); step >= 0 {
		p, err := plan.New(c.Plan.Job, c.Plan.Model, plan.Options{Resume: true, Nodes: nodesOf(c.Plan)})
		if err != nil {
			return err
		}
		r.plan, r.rounds.First = p, step
	}
	r.undo()
	r.disks.full = nil // to go back takes longer than a disk is full
	r.book.begin(r.plan)
	trainer, err := r.spawn(Life{ID: plan.Trainer})
	if err != nil {
		return err
	}
	actors := []Actor{trainer}
	defer func() { Close(actors) }()
	for _, a := range r.plan.Actors[1:] {
		x, err := r.spawn(Life{ID: a.ID})
		if err != nil {
			return err
		}
		actors = append(actors, x)
	}
	res, err := Run(Config{
		Actors: actors, Device: c.Device, Seed: r.out.Seed + uint64(r.attempt)<<32, Network: c.Network, Trace: r.trace, EventsMax: 200_000,
		Cluster: &Cluster{
			Plan: r.plan, Nodes: c.Nodes, Faults: r.faults, Disks: r.disks, Respawn: r.spawn, Plant: c.Plant,
			Limits: supervisor.Limits{Restarts: 50, Window: time.Minute, Backoff: 10 * time.Millisecond, Resumes: attemptsMax, Resumable: true, Join: 30 * time.Second},
		},
	})
	if res != nil {
		r.out.Events += res.Events
		r.out.Time += res.Time
		r.out.Struck = res.Struck
		r.out.Decisions = append(r.out.Decisions, res.Decisions...)
		r.out.Lives = res.Lives
		for _, n := range res.Lives {
			r.out.Restarts += n
		}
	}
	return err
}

// nodesOf is the number of worker nodes that a plan was made for.
func nodesOf(p *plan.Plan) int {
	n := 0
	for _, a := range p.Actors {
		n = max(n, a.Node)
	}
	return n
}

// undo forgets what was committed after the snapshot.
func (r *run) undo() {
	var kept []plan.Round
	for _, round := range r.order {
		if round.Step < r.rounds.First || r.rounds.First > r.config.Rounds.First && round.Step == r.rounds.First && round.Phase <= plan.SnapshotPhase {
			kept = append(kept, round)
		} else {
			delete(r.outcomes, round)
		}
	}
	r.order = kept
	first := r.rounds.First * int64(r.plan.Job.Train.Batch)
	for i := range r.committed {
		if i >= first {
			delete(r.committed, i)
		}
	}
}

// spawn makes an actor for a new life.
func (r *run) spawn(l Life) (Actor, error) {
	if l.Incarnation > 0 {
		r.begun++
	}
	if l.ID != plan.Trainer {
		a, err := r.book.actor(r, l)
		if err == nil && r.bounds != nil {
			a.Executor = &bounded{Executor: a.Executor, account: a.Account, id: l.ID, run: r}
		}
		return a, err
	}
	r.fed = map[int64]int{}
	options := []supervisor.TrainerOption{supervisor.WithShares(l.Shares)}
	if l.Incarnation > 0 {
		options = append(options, supervisor.Reopen(l.Incarnation, l.Open, l.Lives))
	}
	account := device.NewAccount(string(plan.Trainer), 0)
	x, err := r.book.trainer(r, account)
	return Actor{Machine: supervisor.NewTrainer(r.plan, r.rounds, options...), Executor: x, Account: account}, err
}

// finished takes in what has come of a round that all actors have finished. It may come twice: a trainer that ends
// before it has opened the next round opens this one again.
func (r *run) finished(round plan.Round, what string) error {
	shares := round.Shares
	round = round.Bare()
	if before, ok := r.outcomes[round]; ok {
		if before != what {
			return fmt.Errorf("sim: %s has given %s, and now gives %s", round, before, what)
		}
		return nil
	}
	if round.Phase != plan.InitPhase && len(r.order) > 0 && !r.order[len(r.order)-1].Before(round) {
		return fmt.Errorf("sim: %s commits after %s", round, r.order[len(r.order)-1])
	}
	r.outcomes[round] = what
	r.order = append(r.order, round)
	if shares != "" {
		r.out.Shifted++
	}
	if round.Phase != plan.TrainPhase {
		return nil
	}
	batch := int64(r.plan.Job.Train.Batch)
	for i := round.Step * batch; i < (round.Step+1)*batch; i++ {
		r.committed[i] += r.fed[i]
	}
	return nil
}
