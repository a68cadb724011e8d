// Package plan turns a job into programs: what every actor does in every round, decided before
// step 0 by pure functions. Nothing here starts a goroutine, reads a clock, opens a file or touches a tensor.
//
//	job, err := plan.Parse("job.yaml", data) // strict YAML over the defaults
//	err = job.Set("layout.pipeline=2")        // as --set does
//	err = job.Validate()                      // what can be said without a model
//	p, err := plan.New(job, model, plan.Options{Nodes: 4})
//	for _, op := range p.Program(plan.StageID(0, 0), plan.TrainPhase).Ops {
//		fmt.Println(op)
//	}
//
// The way from a job to a plan: layers over pipeline ranks (partition.go), parameters over shards
// (pieces.go), rows over micro-batches (micro.go), actors over nodes (place.go), schedules to
// programs (lower.go and a file for each phase), the prediction of memory and time (predict.go).
// New ends with Check, which proves a plan and shares no code with the lowering.
//
// Invariants:
//   - A plan is a pure function of job, model and options: every node makes the same one.
//   - Every value that is read is written before, at the same actor or by exactly one Send of another.
//   - Every program ends under every timing of the messages (Kahn 1974; see Program).
//   - Gradients are summed as one balanced binary tree over the micro-batches of the whole batch
//     (tree.go), so no layout changes the order of any sum.
package plan
