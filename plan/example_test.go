package plan

import "fmt"

// The program of the last of two stages for three sequences in micro-batches of two and one.
func ExampleNew() {
	job := toyJob(3, 2, 2, 1, "1f1b")
	p, err := New(job, toy(2), Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, op := range p.Program(StageID(1, 0), TrainPhase).Ops {
		fmt.Println(op)
	}
	// Output:
	// receive activation into layer 1 micro-batch 0 from stage.p0.d0
	// receive targets micro-batch 0 from trainer
	// forward layers 1..1 micro-batch 0
	// send loss micro-batch 0 to trainer
	// backward-input layers 1..1 micro-batch 0
	// send activation gradient into layer 1 micro-batch 0 to stage.p0.d0
	// backward-weight layers 1..1 micro-batch 0
	// receive activation into layer 1 micro-batch 1 from stage.p0.d0
	// receive targets micro-batch 1 from trainer
	// forward layers 1..1 micro-batch 1
	// send loss micro-batch 1 to trainer
	// backward-input layers 1..1 micro-batch 1
	// send activation gradient into layer 1 micro-batch 1 to stage.p0.d0
	// backward-weight layers 1..1 micro-batch 1
	// add gradient bucket 0 use 1 micro-batches 0..1
	// send gradient bucket 0 use 1 micro-batches 0..1 piece 0 to shard.p0.d0
	// add gradient bucket 2 use 0 micro-batches 0..1
	// send gradient bucket 2 use 0 micro-batches 0..1 piece 0 to shard.p1.d0
	// receive parameters bucket 0 piece 0 from shard.p0.d0
	// load bucket 0
	// receive parameters bucket 2 piece 0 from shard.p1.d0
	// load bucket 2
	// finish
	// send report 2 to trainer
}
